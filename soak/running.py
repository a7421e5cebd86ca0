"""One run: clients and faults on a cluster, and afterwards what is there."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from soak.checker import secrets_seen
from soak.clients import Clients
from soak.clusters import Cluster, PostgresInstances, SqliteProcess
from soak.faults import Faults
from soak.history import History, Kind
from soak.network import Upstream
from soak.schedule import CLIENTS, Ask, Edit, Round, operations
from tests.stores.postgres_server import PASSWORD, PostgresServer
from tests.support import fork_server
from tests.support.canary import canary


async def attacked(
    kind: Kind,
    seed: int,
    rounds: Iterable[Round],
    folder: Path,
    *,
    server: PostgresServer | None = None,
    schema: str = "soak",
    count: int = CLIENTS,
    jumping: bool = False,
    disk: Path | None = None,
    left_out: dict[str, str] | None = None,
) -> History:
    """What happened in these rounds to so many clients. A `server` is needed for PostgreSQL, and is running at the end.

    `left_out` gets the faults that cannot be made here, with the reason.
    """
    history, started = History(store=kind), time.monotonic()

    def now() -> float:
        return time.monotonic() - started

    async with (
        Upstream(now) as upstream,
        _cluster(kind, folder, upstream, server, schema, jumping) as cluster,
    ):
        cluster.disk = disk
        clients, faults = Clients(cluster, history, now), Faults(cluster, history, now)
        work = [operations(seed, kind, number) for number in range(count)]
        await _rounds(rounds, clients, faults, work)
        await cluster.well()
        history.called += upstream.called
        await clients.recover()
        await clients.replay_all()
        history.complaints += secrets_seen(_secrets(clients), await _stored(cluster))
        history.complaints += await cluster.stop()
        history.complaints += await _damage(cluster.store)
    if left_out is not None:
        left_out |= faults.left_out
    return history


@asynccontextmanager
async def _cluster(
    kind: Kind,
    folder: Path,
    upstream: Upstream,
    server: PostgresServer | None,
    schema: str,
    jumping: bool,
) -> AsyncIterator[Cluster]:
    cluster: PostgresInstances | SqliteProcess
    if kind == "postgres":
        assert server is not None
        cluster = PostgresInstances(
            folder, upstream.url, canary("key"), server, schema, jumping=jumping
        )
    else:
        cluster = SqliteProcess(folder, upstream.url, canary("key"), jumping=jumping)
    async with cluster.running():
        yield cluster


async def _rounds(
    rounds: Iterable[Round], clients: Clients, faults: Faults, work: Sequence[Iterator[Ask | Edit]]
) -> None:
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(faults.watch_for_starvation())
        async with clients.working(*work):
            for one_round in rounds:
                clients.number = one_round.number
                async with asyncio.TaskGroup() as both:
                    both.create_task(faults.make(one_round.fault))
                    both.create_task(_steered(one_round, clients))
        watching.cancel()


async def _steered(what: Round, clients: Clients) -> None:
    for steering in what.steering:
        await clients.steer(steering)
        await asyncio.sleep(steering.pause_s)


def _secrets(clients: Clients) -> dict[str, str]:
    """What was sent with requests, and what the database asks for."""
    if clients.cluster.kind == "postgres":
        return {**clients.secrets, "of the database": PASSWORD}
    return clients.secrets


async def _stored(cluster: Cluster) -> dict[str, bytes]:
    places: dict[str, bytes] = {}
    async for place, content in cluster.stored():
        places[place] = places.get(place, b"") + b"\n" + content
    return places


async def _damage(store: str) -> list[str]:
    """What `tapeway cassette verify` finds once all have stopped."""
    process = await asyncio.create_subprocess_exec(
        *(*fork_server.command(), "cassette", "verify"),
        env={"TAPEWAY_STORE": store},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return [f"verify: {said.decode()[-2000:]}"] if process.returncode else []
