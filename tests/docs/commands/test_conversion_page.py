"""The page on formats: its conversions run as shown, and it names every format."""

import shlex
from pathlib import Path

import pytest

from tapeway.cli.main import main
from tapeway.formats import registry
from tests.cli.invocation import written
from tests.formats.other_tools.example_files import text
from tests.support.exchanges import interaction
from tests.support.markdown import ROOT, fenced

_TEXT = (ROOT / "docs/formats.md").read_text("utf-8")
_SECTION = _TEXT.partition("\n## Converting\n")[2].partition("\n## ")[0]
_STORES = _TEXT.partition("\n## Between stores\n")[2].partition("\n## ")[0]


def _codes(section: str) -> list[object]:
    (block,) = fenced(section)
    codes: list[object] = []
    for line in block.text.strip().splitlines():
        command, *arguments = shlex.split(line)
        assert command == "tapeway"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        codes.append(ended.value.code)
    return codes


def test_the_conversions_run_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("session.har").write_bytes(text("browser.har"))

    codes = _codes(_SECTION)

    # The archive has calls without an answer, and a picture that interposition cannot hold.
    assert codes == [1, 0, 0, 1, 0]
    assert "3 of 6 interactions" in capsys.readouterr().out


def test_the_ways_between_stores_run_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("smoke", interaction())

    assert _codes(_STORES) == [0, 0, 0, 0]

    assert Path("elsewhere/suite/smoke.json").read_bytes() == file.read_bytes()
    out = capsys.readouterr().out
    assert len({line.partition("sha256:")[2] for line in out.splitlines()}) == 1


@pytest.mark.parametrize("kind", registry.FORMATS, ids=lambda kind: kind.name)
def test_every_format_is_named(kind: registry.Format) -> None:
    assert f"`{kind.name}`" in _SECTION
    for suffix in kind.suffixes:
        assert f"`{suffix}`" in _SECTION
