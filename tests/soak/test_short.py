"""Every fault once, on instances over PostgreSQL and on a process over SQLite: no promise is broken."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from soak.checker import violations
from soak.clusters import limited_disk
from soak.history import History
from soak.running import attacked
from soak.schedule import short_rounds
from tests.stores.postgres_server import PostgresServer, fresh
from tests.support.thoroughness import runs_everything

pytestmark = pytest.mark.slow

SEED = 1
CLIENTS = 4


def seed() -> int:
    """The same in every run, another one with `--all`; `SEED` in the environment repeats it."""
    drawn = int.from_bytes(os.urandom(2)) if runs_everything() else SEED
    return int(os.environ.get("SEED", drawn))


async def test_four_instances_over_postgresql_keep_their_promises(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    number = seed()
    async with fresh(postgres_server.dsn) as url:
        schema = url.rpartition("schema=")[2]
        rounds = short_rounds(number, "postgres")
        try:
            history = await attacked(
                *("postgres", number, rounds, tmp_path),
                server=postgres_server,
                schema=schema,
                count=CLIENTS,
            )
        finally:
            if not postgres_server.runs:
                postgres_server.start()

    check(history, number, tmp_path)


async def test_a_process_over_sqlite_keeps_its_promises(tmp_path: Path) -> None:
    number = seed()
    with ExitStack() as stack:
        disk = stack.enter_context(limited_disk(tmp_path / "disk", "sqlite"))
        rounds = short_rounds(number, "sqlite")
        history = await attacked("sqlite", number, rounds, tmp_path, disk=disk, count=CLIENTS)

    check(history, number, tmp_path)


def check(history: History, number: int, folder: Path) -> None:
    """Break with all violations, the seed that repeats the run, and where its history is."""
    history.save(kept := folder / "history.jsonl")
    found = violations(history)
    assert not found, "\n".join([f"SEED={number}", str(kept), *found])
    # What else was seen depends on how far each client came between two changes of the mode.
    assert {answer.outcome for answer in history.asked} >= {"recorded", "replayed"}
    assert {answer.status for answer in history.edited} >= {200}
    assert history.faults
