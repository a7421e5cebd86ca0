"""The pages on configuration and the command line are written by the program."""

import pytest

from scripts.reference_pages import PAGES, configuration
from tests.support.markdown import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_program_says(name: str) -> None:
    # After a change: python scripts/reference_pages.py NAME > docs/NAME.md
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == PAGES[name]()


def test_every_row_has_as_many_cells_as_its_header() -> None:
    widths = {
        line.replace("\\|", "").count("|")
        for line in configuration().splitlines()
        if line[:1] == "|"
    }

    assert widths == {4, 5}
