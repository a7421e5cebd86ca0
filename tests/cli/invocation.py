"""`tapeway …` as people run it, and cassettes to run it on."""

from pathlib import Path

import pytest

from tapeway.cli.main import main
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.formats.native import document
from tests.stores.recordings import HEAD
from tests.support.exchanges import interaction

KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
"""A secret by its shape."""


def run_tapeway(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The same for `tapeway cassette …`."""
    return run_tapeway(capsys, "cassette", *arguments)


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The same for `scan` and `redact`, without the last line, which sums up what was searched."""
    code, out, err = run(capsys, *arguments)
    lines = out.splitlines(keepends=True)
    assert lines
    return code, "".join(lines[:-1]), err


def written(name: str, *items: AnyInteraction) -> Path:
    """A cassette in the folder that is the default store."""
    file = Path("cassettes") / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(document.save(StoredCassette(HEAD, items)))
    return file


def cassette_text(*texts: str, meta: dict[str, Json] | None = None) -> bytes:
    """A cassette file with a response for each text."""
    documents = []
    for text in texts:
        item = document.encode(interaction(body=b"x", response_headers=()))
        item["response"] = {"status_code": 200, "text": text}
        documents.append(item)
    head = HEAD if meta is None else type(HEAD)(HEAD.created_at, HEAD.run_id, meta)
    return document.write(head, documents)
