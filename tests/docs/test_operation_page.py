"""docs/errors.md quotes what the program says, docs/operation.md has its limits."""

import re
from pathlib import Path

import pytest

import tapeway.loop_guard as loop_guard
from tapeway.admin import auth, request_body
from tapeway.admin.handlers import cassettes, copies, import_export
from tapeway.admin.handlers.inspection import search
from tapeway.core import json_text
from tapeway.core.http import content_codings
from tapeway.core.model.messages import LARGE_BODY
from tapeway.engine import journal, kept_calls
from tapeway.engine.cassettes import followed_index
from tapeway.engine.editing import changes
from tapeway.engine.report import summary
from tapeway.formats.yaml import parser as yaml_parser
from tapeway.inspection import known
from tapeway.inspection import search as inspected
from tapeway.server import front, hits, miss_explainer, plain_heads, prepared_answers
from tapeway.settings.options import OPTION_OF, Settings
from tapeway.stores.file import recording_file
from tapeway.stores.postgres import pool
from tapeway.stores.postgres.operations import coordination
from tapeway.stores.remote import client
from tapeway.stores.sqlite import connection
from tapeway.stores.support import large_bodies, resident_recordings

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
PAGE = PAGES["operation.md"]
ERRORS = PAGES["errors.md"]
MODULES = sorted((ROOT / "src" / "tapeway").rglob("*.py"))


def _text(modules: list[Path]) -> str:
    # A message that is broken over lines is one again without its quotes.
    return re.sub(r'"\s*f?"', "", "\n".join(path.read_text() for path in modules))


SOURCE = _text(MODULES)


def _quoted_messages() -> list[str]:
    table = ERRORS.partition("## At the start")[2].partition("## While it serves")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return [quote for cell in cells for quote in re.findall("`([^`]+)`", cell)]


@pytest.mark.parametrize("message", _quoted_messages())
def test_a_quoted_message_is_one_that_is_said(message: str) -> None:
    assert message in SOURCE


def _limits() -> list[list[str]]:
    table = PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = [row.strip("|").split("|") for row in table.splitlines() if row.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def _shown(value: float, syntax: str) -> str:
    if syntax == "SIZE":
        return f"{value / 2**20:g} MiB"
    return f"{value:g} s" if syntax == "SECONDS" else f"{value}"


def test_the_table_of_limits_has_every_setting_that_is_one_with_its_value() -> None:
    told = {row[1].strip("`"): row[2] for row in _limits() if row[1].startswith("`--")}
    settings = Settings()
    limits = {
        f"--{name.replace('_', '-')}": _shown(value, _syntax(name))
        for name in OPTION_OF
        if type(value := getattr(settings, name)) in (int, float) and name != "miss_status"
    }

    assert told == limits


def _syntax(name: str) -> str:
    return OPTION_OF[name].metavar


KIB, MIB = 2**10, 2**20
FIXED = {
    "an idle connection of a client": f"{front.IDLE_S:g} s",
    "a request that may have come back through other tapeways, before its upstream has ever responded": (
        f"{loop_guard.LATE_S + loop_guard.HELD_S:g} s"
    ),
    "cursors of a take that has ended, in a database": (
        f"{0.8 * coordination.SWEEP_S:.0f} to {2 * 1.2 * coordination.SWEEP_S:.0f} s, then removed "
        f"in batches of {coordination.BATCH}"
    ),
    "decoding a compressed body in memory": (
        f"{content_codings.MAX_DECODED // MIB} MiB, {content_codings.MAX_RATIO} times its size above "
        f"{content_codings.FREE // MIB} MiB"
    ),
    "nesting of JSON and YAML": f"{json_text.MAX_DEPTH} levels",
    "a cassette in YAML": f"{yaml_parser.MAX_SIZE // MIB} MiB",
    "misses that are compared with recordings at once": f"{miss_explainer.MOST_WAITING}",
    "different misses in a report": (
        f"{journal.MOST_MISSES}, {journal.MOST_EXPLAINED_MISSES} of them with their nearest recording"
    ),
    "unused, duplicate and stale recordings in the report of a database": f"{summary.MOST_LISTED}",
    "cassettes in the metrics": f"{journal.MAX_NAMED}",
    "a document sent to the admin API": f"{request_body.MAX_IN_MEMORY // MIB} MiB",
    "a copy of a cassette sent to the admin API": f"{copies.MAX_COPY // MIB} MiB",
    "a cassette of a database that is exported as one document": (
        f"{cassettes.MAX_WHOLE_BYTES // MIB} MiB"
    ),
    "bodies in files that are exported in one document": f"{import_export.MAX_INLINED // MIB} MiB",
    "`Idempotency-Key`s that are remembered": (
        f"{changes.MOST_KEYS}, together {changes.MOST_BYTES // MIB} MiB of indexes and digests"
    ),
    "wrong tokens of the admin API from one address": (
        f"{auth.BURST}, then {auth.PER_SECOND} a second"
    ),
    "waiting for a lock of another program, such as a backup, on an SQLite file": f"{connection.BUSY_MS // 1000} s",
    "a statement to PostgreSQL": f"{pool.COMMAND_S:g} s; {pool.LONG_S:g} s on a whole cassette",
    "another tapeway as the store that does not answer": (
        f"{client.PATIENCE_S:g} s, silent {client.SILENCE_S:g} s"
    ),
    "replays answered without aiohttp: heads, bodies and answers of": (
        f"{plain_heads.LARGEST_HEAD // KIB} KiB, {plain_heads.LARGEST_BODY // KIB} KiB, "
        f"{prepared_answers.LARGEST_PREPARED // KIB} KiB"
    ),
    "targets, lines of fields, heads and prepared answers that are remembered for them": (
        f"{hits.MOST_TARGETS}, {plain_heads.MOST_LINES}, {plain_heads.MOST_HEADS}, "
        f"{prepared_answers.MOST_PREPARED // MIB} MiB"
    ),
    "cassettes that were asked for and hold nothing": f"{journal.MOST_EMPTY}",
    "misses, errors and passed-on calls that are kept to be shown; a body of one": (
        f"{kept_calls.MOST_KEPT_BYTES // MIB} MiB; {LARGE_BODY // MIB} MiB"
    ),
    "entries of the journal that one call searches for a text, and bytes of their bodies": (
        f"{search.MOST_ENTRIES}; {search.MOST_BYTES // MIB} MiB"
    ),
    "titles, texts and conversations of cassettes that are kept to be listed and searched; texts of "
    "one cassette": f"{known.MOST_BYTES // MIB} MiB; {inspected.MOST_SEARCHED // MIB} MiB",
    "recordings of a database that stay in memory here": (
        f"{followed_index.MOST_BYTES // MIB} MiB"
    ),
    "cassettes of a folder that stay in their files; of these, recordings in memory; such files": (
        f"from {recording_file.SMALLEST_FILE // KIB} KiB; {resident_recordings.MOST_RESIDENT // MIB} MiB; "
        f"{resident_recordings.MOST_FILES}"
    ),
    "large bodies of a database or another tapeway that stay here as temporary files": (
        f"{large_bodies.CACHED_FILES}, together {large_bodies.CACHED_BYTES // 2**20} MiB"
    ),
}
"""The limits that nothing sets."""


def test_the_table_of_limits_has_every_fixed_one_with_its_value() -> None:
    assert {row[0]: row[2] for row in _limits() if row[1] == "fixed"} == FIXED
