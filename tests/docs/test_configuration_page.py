"""The pages on configuration and the command line are written by the program."""

import pytest

from scripts.reference_pages import PAGES, command_line, configuration
from tapeway.settings.options import OPTION_OF
from tapeway.settings.sources import OPTIONS
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


def test_the_page_of_commands_refers_to_the_options_and_describes_none_again() -> None:
    page = command_line()
    text = " ".join(page.replace("`", "").split())
    descriptions = [OPTION_OF[name].description.replace("`", "") for name in OPTIONS]

    assert [description for description in descriptions if description in text] == []
    assert [
        section.splitlines()[0]
        for section in page.split("\n## ")[1:]
        if "ptions of the configuration](configuration.md#options)" not in section
    ] == ["tapeway verify"]
    assert page.endswith("## tapeway verify\n\nThe same as `tapeway cassette verify`.\n")
