"""docs/admin-api.md says what there is."""

import re

import pytest

from tapeway.admin.auth import BURST, PER_SECOND
from tapeway.admin.handlers.cassettes import MAX_COUNTED_BYTES
from tapeway.admin.request_body import MAX_BODY
from tapeway.admin.routes import TABLE
from tests.admin.admin_and_proxy import World
from tests.admin.handlers.test_journal import KEYS
from tests.support.markdown import ROOT

DOCUMENT = (ROOT / "docs/admin-api.md").read_text(encoding="utf-8")


def test_its_table_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `([A-Z]+ /\S*)` \|", DOCUMENT, re.MULTILINE)

    assert sorted(rows) == sorted(f"{operation.method} {operation.path}" for operation in TABLE)


async def test_its_metrics_are_those_there_are(open_world: World) -> None:
    await open_world.ask()
    text = (await open_world.octets("/metrics")).decode()

    described = set(re.findall(r"^\| `(tapeway_\w+)", DOCUMENT, re.MULTILINE))

    assert described == set(re.findall(r"^# TYPE (tapeway_\w+)", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("After (\\d+) wrong tokens", BURST),
        ("at most (\\d+) MiB; beyond", MAX_COUNTED_BYTES >> 20),
        ("at most (\\d+) MiB \\(413\\)", MAX_BODY >> 20),
    ],
)
def test_its_numbers_are_those_of_the_code(said: str, meant: int) -> None:
    assert re.findall(said, DOCUMENT) == [str(meant)]
    assert PER_SECOND == 10, "it says ten tries a second"


def test_its_journal_entry_has_all_fields() -> None:
    (shape,) = re.findall(r"A journal entry is `\{([^}]*)\}`", DOCUMENT)

    assert re.split(r",\s+", shape) == KEYS
