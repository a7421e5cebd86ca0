"""docs/faults.md names what a fault can do, where it stands, and what is told of it."""

import re
from dataclasses import fields
from typing import get_args

from tapeway.core.model.faults import DOES, MATCHED, Fault
from tapeway.engine.faulted_calls import Next
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs/faults.md").read_text("utf-8")


def test_its_table_has_everything_that_a_fault_can_do() -> None:
    table = TEXT.partition("| `do` | |\n")[2].partition("\n\n")[0]
    named = [
        name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]

    assert sorted(named) == sorted(DOES)


def test_it_names_every_member_of_a_fault() -> None:
    members = {*(member.name for member in fields(Fault)), *MATCHED}

    assert {name for name in members if not re.search(rf"\b{name}\b", TEXT)} == set()


def test_it_names_everything_that_a_client_can_have_done_next() -> None:
    assert all(f"| `{name}` |" in TEXT for name in get_args(Next))
