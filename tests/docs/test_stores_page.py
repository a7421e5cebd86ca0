"""The page on stores: its tables have every store, level and fact."""

import re
from dataclasses import fields

from tapeway.ports import StoreFacts
from tests.stores.contract.kinds import KINDS
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs/stores.md").read_text("utf-8")


def test_the_table_has_every_kind_of_store_and_every_level() -> None:
    table = TEXT.partition("## Which one")[2].partition("\n## ")[0]
    for kind in KINDS:
        named = {"file": "file:DIR", "file-yaml": "?format=yaml", "remote": "http"}
        assert named.get(kind.name, kind.name) in table, kind.name
    assert _first_column("What durable") == {"process", "disk", "primary", "remote", "server"}


def test_the_table_for_writers_of_a_store_has_every_fact() -> None:
    assert _first_column("Writing a store") == {field.name for field in fields(StoreFacts)}


def _first_column(section: str) -> set[str]:
    text = TEXT.partition(f"## {section}")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
