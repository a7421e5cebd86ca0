"""The page on histories: what it shows is what happens."""

import subprocess
import sys
from pathlib import Path

import pytest

from tapeway.errors import RequestError
from tapeway.integrations.history import storage
from tapeway.integrations.history.storage import name_of
from tests.support.markdown import ROOT, blocks

TEXT = (ROOT / "docs/history.md").read_text("utf-8")


def test_the_example_says_what_is_shown(tmp_path: Path) -> None:
    code, shown = [block.text for block in blocks("docs/history.md")]

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout == shown


def test_the_limits_are_those_that_are_told() -> None:
    assert "up to 128 lowercase letters" in TEXT
    assert name_of("a" * 128) == "history/" + "a" * 128
    assert "up to 762 characters in total" in TEXT
    assert name_of("_" + "a" * 759).startswith("history/escaped/s_5f")
    with pytest.raises(RequestError):
        name_of("_" + "a" * 760)
    assert f"has used {storage.MOST_CLAIMED} other sessions since" in TEXT
