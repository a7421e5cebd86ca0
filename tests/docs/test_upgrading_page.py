"""docs/upgrading.md: the versions that it names are those that are written."""

import re

from tapeway.formats.native import document
from tapeway.stores.file import journal
from tapeway.stores.postgres import schema as postgres
from tapeway.stores.sqlite import schema as sqlite
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs/upgrading.md").read_text("utf-8")


def test_the_versions_it_names_are_those_that_are_written() -> None:
    shown = re.findall(
        r"^\| (cassette|journal|tables of a `\w+:`).*? \| (\d+) \|", TEXT, re.MULTILINE
    )

    assert {what: int(version) for what, version in shown} == {
        "cassette": document.VERSION,
        "journal": journal.VERSION,
        "tables of a `sqlite:`": sqlite.VERSION,
        "tables of a `postgresql:`": postgres.VERSION,
    }
