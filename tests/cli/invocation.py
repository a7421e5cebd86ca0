"""`tapeway cassette …` as people run it, and cassettes to run it on."""

from pathlib import Path

import pytest

from tapeway.cli.main import main
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.formats.native import document
from tests.stores.recordings import HEAD


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code, what was said, and what was complained about."""
    with pytest.raises(SystemExit) as ended:
        main(["cassette", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def written(name: str, *items: AnyInteraction) -> Path:
    """A cassette in the folder that is the default store."""
    file = Path("cassettes") / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(document.save(StoredCassette(HEAD, items)))
    return file
