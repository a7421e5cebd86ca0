"""The page on stores: its tables have every store, level and fact."""

import re
from dataclasses import fields

from tapeway.ports import PORT_VERSION, CassetteStore, StoreFacts
from tapeway.stores.whole import WholeCassettes
from tests.stores.contract.kinds import KINDS
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs/stores.md").read_text("utf-8")


def test_the_table_has_every_kind_of_store_and_every_level() -> None:
    table = TEXT.partition("## Which one")[2].partition("\n## ")[0]
    for kind in KINDS:
        named = {"file": "file:DIR", "file-yaml": "?format=yaml", "remote": "http"}
        assert named.get(kind.name, kind.name) in table, kind.name
    assert _first_column("What durable") == {"process", "disk", "primary", "remote", "server"}


def test_the_tables_for_writers_of_a_store_have_every_fact_and_member() -> None:
    members, _, facts = _part("### What a store has").partition("What is true of a store")
    assert _first_cells(facts) == {field.name for field in fields(StoreFacts)}
    own = {"put", "delete"}
    ports = {name for name in dir(CassetteStore) if not name.startswith("_")}
    assert _first_cells(members) == ports | own
    given = {name for name in vars(WholeCassettes) if not name.startswith("_")}
    assert _first_cells(members.partition("These have an answer")[2]) == (
        given - WholeCassettes.__abstractmethods__
    )


def test_the_page_names_the_version_of_the_port() -> None:
    assert f"PORT_VERSION = {PORT_VERSION}\n" in _part("## Writing a store")


def _first_column(section: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", _part(f"## {section}"), re.MULTILINE))


def _first_cells(text: str) -> set[str]:
    """All names in the first cells of a table."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def _part(heading: str) -> str:
    """The text from a heading to the next one that is no lower."""
    level = heading.partition(" ")[0]
    return re.split(rf"\n#{{2,{len(level)}}} ", TEXT.partition(heading)[2])[0]
