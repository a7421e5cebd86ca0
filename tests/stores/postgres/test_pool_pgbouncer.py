"""Behind PgBouncer, which gives each transaction another connection to the server."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import pytest

from tapeway.core.model.control import Control, with_mode
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.contract.test_shared_moves import Moves
from tests.stores.postgres_server import PASSWORD, QUOTED, PostgresServer, as_unprivileged, fresh
from tests.stores.recordings import HEAD, indexes
from tests.stores.shared_instances import (
    WANTED,
    cursors_of,
    found_indexes,
    instances,
    key,
    other_answer,
    recordings_under,
    seen_of,
    with_step,
)
from tests.support.ports import free_port

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def pooler(request: pytest.FixtureRequest) -> Iterator[str]:
    """Its address; it has three connections to the server for all."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer on this machine")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    # Not below those of the tests, which nobody else may enter.
    with tempfile.TemporaryDirectory(prefix="tapeway-pooler-") as folder:
        yield from _running(program, Path(folder), server)


def _running(program: str, folder: Path, server: PostgresServer) -> Iterator[str]:
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(_settings(server.port, port, folder))
    (folder / "users").write_text(f'"tapeway" "{PASSWORD}"\n')
    folder.chmod(0o755)
    with subprocess.Popen(
        [program, settings], **as_unprivileged(), stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            _ready(process.stderr)
            yield f"postgresql://tapeway:{QUOTED}@127.0.0.1:{port}/postgres"
        finally:
            process.terminate()


def _settings(server: int, port: int, folder: Path) -> str:
    return f"""
[databases]
postgres = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder / "users"}
pool_mode = transaction
default_pool_size = 3
log_connections = 0
log_disconnections = 0
"""


def _ready(output: IO[bytes]) -> None:
    for line in output:
        if b"process up" in line:
            return
    raise RuntimeError("pgbouncer did not start")


@pytest.fixture
async def pair(pooler: str) -> AsyncIterator[list[PostgresStore]]:
    async with (
        fresh(pooler) as url,
        instances(lambda: PostgresStore(url, lease_s=1)) as stores,
    ):
        yield [store for store in stores if isinstance(store, PostgresStore)]


async def test_everything_works_behind_a_pooler_of_transactions(
    pair: list[PostgresStore],
) -> None:
    one, other = pair
    heard: list[Control] = []
    await one.join(WANTED, lambda _: None)
    await other.join(WANTED, heard.append)
    held = await one.claim("x", key(0))
    assert held is not None

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        for number in range(100):
            made = with_step(other_answer(1, number), 1)
            tasks.create_task(pair[number % 2].append("x", HEAD, made))

    assert indexes(await other.load("x", writable=False)) != []
    assert sorted(found_indexes(await recordings_under(one, "x", [key(1), key(2)]))) == list(
        range(100)
    )
    (turn,) = (await cursors_of(other, "x", 1, [key(1)])).values()
    assert turn.state == b"100"
    moves, seen = Moves(one), await seen_of(one)
    second = moves.begin(1, turn, b"101", touched=1, seen=seen)
    moves.begin(1, second, b"102", seen=seen)
    moves.begin(1, turn, None, seen=seen)
    moves.begin(2, None, b"1", seen=seen)
    assert all(move.after is not None for move in await moves.settled(4))
    (turn,) = (await cursors_of(other, "x", 1, [key(1)])).values()
    assert turn.state == b"102"
    control = await one.steer(lambda now: with_mode(now, "replay"))
    await other.confirm()
    assert heard[-1] == control
    await one.append("x", HEAD, with_step(other_answer(0, 100), 1, lease=held))
    assert await other.claim("x", key(0)) is not None
