"""The page on the library: its program runs as shown, and it names every kind."""

from pathlib import Path
from typing import get_args

import pytest

from tapeway.integrations.calls.cassette import Kind
from tests.support.markdown import ROOT, blocks

PAGE = "docs/library.md"


def test_the_program_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(PAGE)

    exec(compile(block.text, PAGE, "exec"), {})  # noqa: S102 - it is ours

    assert "city: London" in Path("cassettes/agent.yaml").read_text()


def test_the_page_names_every_kind() -> None:
    text = (ROOT / PAGE).read_text("utf-8")

    assert all(f"`{kind}`" in text for kind in get_args(Kind))
