"""The pages on configuration and the command line are written by the program."""

import pytest

from scripts.reference_pages import PAGES
from tests.support.markdown import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_program_says(name: str) -> None:
    # After a change: python scripts/reference_pages.py NAME > docs/NAME.md
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == PAGES[name]()
