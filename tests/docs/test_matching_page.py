"""The page on matching: what it shows is what happens."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.markdown import ROOT, Block, fenced
from tests.support.shell_blocks import Shell


def section(title: str) -> list[Block]:
    """The fenced blocks below one heading."""
    text = (ROOT / "docs/matching.md").read_text("utf-8")
    _, heading, rest = text.partition(f"\n## {title}\n")
    assert heading, title
    return fenced(rest.partition("\n## ")[0])


@pytest.mark.slow
def test_a_miss_explains_itself_and_is_accepted_as_shown(tmp_path: Path) -> None:
    shown = said = ""
    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes")
        for block in section("When a request misses"):
            if block.language == "sh":
                said = shell.run(block)
            else:
                assert said.strip() == block.text.strip()
                shown += said
    assert "replay miss" in shown
    assert "Tapeway-Outcome: replayed" in shown


@pytest.mark.slow
def test_the_doctor_finds_the_rule_that_is_shown(tmp_path: Path) -> None:
    with ExitStack() as stack:
        command, shown = section("Doctor")
        rest = Shell(stack, tmp_path / "cassettes", folder=tmp_path).run(command)
        for part in shown.text.split("…"):
            _, found, rest = rest.partition(part)
            assert found, part
    assert rest == ""
