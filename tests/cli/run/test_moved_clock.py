"""A command sees another day through libfaketime, wherever a system keeps it."""

import sys
from pathlib import Path

import pytest

from tapeway.cli.run.moved_clock import environment_days_later
from tapeway.errors import ConfigError

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="Linux loads it by LD_PRELOAD")


@pytest.mark.parametrize(
    "folder", ["usr/lib/x86_64-linux-gnu/faketime", "usr/lib64/faketime", "usr/local/lib/faketime"]
)
def test_the_library_is_loaded_before_what_was_to_be_loaded(tmp_path: Path, folder: str) -> None:
    library = tmp_path / folder / "libfaketime.so.1"
    library.parent.mkdir(parents=True)
    library.touch()

    found = environment_days_later({"HOME": "/h", "LD_PRELOAD": "/other.so"}, 3, tmp_path)

    assert found["HOME"] == "/h"
    assert found["LD_PRELOAD"] == f"{library} /other.so"
    assert found["FAKETIME"] == "+3d"
    assert environment_days_later({}, 10, tmp_path)["LD_PRELOAD"] == str(library)


def test_where_it_is_not_installed_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"libfaketime is not installed: install it \(apt"):
        environment_days_later({}, 3, tmp_path)
