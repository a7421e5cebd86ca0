"""What docs/typescript.md shows of the test runners stands in the programs that the tests run."""

import pytest

from tests.clients.node.npm_project import PROGRAMS
from tests.support.markdown import Block, blocks

PAGE = "docs/typescript.md"
SHOWN = [block for block in blocks(PAGE) if block.language in ("js", "json", "ts")]


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: f"{block.section}: {block.text[:20]}")
def test_a_block_is_a_part_of_a_program(block: Block) -> None:
    programs = [*PROGRAMS.rglob("*.*s"), *PROGRAMS.rglob("*.json")]

    assert [program for program in programs if block.text in program.read_text("utf-8")] != []


def test_every_runner_is_shown() -> None:
    assert {block.section for block in SHOWN} == {
        *("Cassettes", "Tests that run at the same time", "Jest", "Playwright", "In a program"),
    }
