"""Several processes on one database that crashes, breaks connections, or is looked into."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.process.counting_upstream import Upstream
from tests.process.instances.shared_database import Traffic, at_once, done, instances
from tests.process.serving import Tapeway
from tests.stores.postgres_server import PASSWORD, QUOTED, PostgresServer, fresh, run
from tests.support.canary import canary, sightings
from tests.support.raw_client import Answer
from tests.support.reuse import reuse_all

pytestmark = pytest.mark.slow

_BREAK_ALL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'tapeway' AND pid <> pg_backend_pid()
"""


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The server, which a test may stop."""
    if os.environ.get("TAPEWAY_TEST_POSTGRES_DSN"):
        pytest.skip("the server of TAPEWAY_TEST_POSTGRES_DSN is not ours to stop")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server
    if not server.runs:
        server.start()


@pytest.fixture
async def url(postgres_dsn: str) -> AsyncIterator[str]:
    """The address of a store of this test's own."""
    async with fresh(postgres_dsn) as url:
        yield url


async def test_a_database_that_crashes_loses_nothing_and_costs_nothing(
    tmp_path: Path, server: PostgresServer, url: str
) -> None:
    async with (
        Upstream() as upstream,
        instances(tmp_path, url, "--upstream", upstream.url, count=3) as members,
    ):
        traffic = Traffic(members)
        async with traffic.running():
            await traffic.reaches(10)
            await asyncio.to_thread(server.stop, "immediate")
            stopped = monotonic()
            for member in members:
                await member.unready()
            why = [await member.admin("GET", "/readyz") for member in members]
            await traffic.reaches(3)
            starting = monotonic()
            await asyncio.to_thread(server.start)
            for member in members:
                await member.at_work()
            await traffic.reaches(10)
        acknowledged = {
            request.target: request.answer.body
            for request in traffic.served
            if request.answer.outcome == b"recorded"
        }
        await done(members[0], "PUT", "mode", {"mode": "replay"})
        replayed = await at_once(members, list(acknowledged))

    assert [answer.body for answer in replayed] == list(acknowledged.values())
    assert {answer.outcome for answer in replayed} == {b"replayed"}
    refused = [request for request in traffic.served if request.answer.status != 200]
    assert {request.answer.status for request in refused} == {503}
    for served in refused:
        # On a slow machine the database is away for longer than a recording is tried.
        said = "recording_failed" if served.target in upstream.asks else "store_unreachable"
        assert _error(served.answer.body)["code"] == said
    assert all("@127.0.0.1" in _error(request.answer.body)["message"] for request in refused)
    assert len(refused) > len(members)
    away = {request.target for request in traffic.between(stopped, starting)}
    assert away
    assert not away & set(upstream.asks)
    assert [document["error"]["code"] for _, document in why] == ["store_unreachable"] * 3
    assert traffic.broken == 0


@pytest.mark.parametrize("mode", ["auto", "replay"])
async def test_an_instance_is_unready_from_the_first_request_that_the_database_fails(
    tmp_path: Path, server: PostgresServer, url: str, mode: str
) -> None:
    async with Upstream() as up, instances(tmp_path, url, "--upstream", up.url, count=1) as [one]:
        await done(one, "PUT", "mode", {"mode": mode})
        assert (await one.admin("GET", "/readyz"))[0] == 200
        await asyncio.to_thread(server.stop, "immediate")
        failed = await one.ask("/first")
        unready = await one.admin("GET", "/readyz")
        await asyncio.to_thread(server.start)
        await one.at_work()
        served = await one.ask("/first")
        ready = await one.admin("GET", "/readyz")

    assert (failed.status, unready[0]) == (503, 503)
    assert unready[1]["error"]["code"] == "store_unreachable"
    assert (served.status, ready[0]) == (200 if mode == "auto" else 400, 200)


def _error(body: bytes) -> dict[str, str]:
    return dict(json.loads(body)["error"])


async def test_connections_that_break_all_the_time_lose_no_wake_up_and_no_answer(
    tmp_path: Path, server: PostgresServer, url: str
) -> None:
    reuse_all(tmp_path)
    config = ("--config", str(tmp_path / "tapeway.toml"))
    rounds = [f"/{number}" for number in range(12)]
    progress = asyncio.Semaphore(0)

    async def asked(member: Tapeway, target: str) -> Answer:
        answer = await member.ask(target)
        if answer.status == 200:
            progress.release()
        return answer

    async with (
        Upstream() as upstream,
        instances(tmp_path, f"{url}&lease=600", "--upstream", upstream.url, *config) as members,
        asyncio.TaskGroup() as tasks,
    ):
        breaking = tasks.create_task(_break_all(server.dsn, progress))
        found = [
            await asyncio.gather(*[asked(member, target) for member in members * 2])
            for target in rounds
        ]
        breaking.cancel()

    for target, answers in zip(rounds, found, strict=True):
        kept = [answer for answer in answers if answer.status == 200]
        assert kept, target
        assert {answer.body for answer in kept} == {upstream.only_answer(target)}
        lost = [_error(answer.body)["code"] for answer in answers if answer.status != 200]
        assert set(lost) <= {"store_unreachable"}
    assert sum(answer.status == 200 for answers in found for answer in answers) > 8 * 12 * 0.8


async def _break_all(dsn: str, progress: asyncio.Semaphore) -> None:
    """Break all connections, and again whenever a few answers more came through.

    Not by the clock: on a slow machine no request would find the time between two breaks.
    """
    connection = await asyncpg.connect(dsn)
    with suppress(asyncio.CancelledError):
        while True:
            await connection.execute(_BREAK_ALL)
            for _ in range(5):
                await progress.acquire()
    await connection.close()


async def test_neither_the_database_nor_a_log_holds_a_secret(
    tmp_path: Path, postgres_dsn: str, url: str
) -> None:
    secrets = {
        "in the address": canary("query"),
        "in a form": canary("form"),
        "in a body": canary("body"),
        "of the database": PASSWORD,
        "of the database, quoted": QUOTED,
    }
    typed = ("Content-Type", "application/json")
    form = ("Content-Type", "application/x-www-form-urlencoded")
    async with (
        Upstream() as upstream,
        instances(tmp_path, url, "--upstream", upstream.url, count=2) as members,
    ):
        for member in members:
            await _leaky(member, secrets, typed, form)
        await done(members[0], "PUT", "mode", {"mode": "replay"})
        for member in members:
            await _leaky(member, secrets, typed, form)
        for member in members:
            await done(member, "GET", "status")
            await done(member, "GET", "journal")
        places = await _tables(postgres_dsn, url)
        places |= {f"log of {member.pid}": member.stderr.encode() for member in members}

    places = {where: text for where, text in places.items() if text}
    assert any(b"REDACTED" in text for text in places.values())
    assert sightings(secrets | {"in a header": members[0].key}, places) == []


async def _leaky(
    member: Tapeway,
    secrets: dict[str, str],
    typed: tuple[str, str],
    form: tuple[str, str],
) -> None:
    address = quote(secrets["in the address"], safe="")
    await member.ask(f"/x?api_key={address}")
    await member.ask("/x", json.dumps({"api_key": secrets["in a body"]}).encode(), typed)
    await member.ask("/x", f"client_secret={quote(secrets['in a form'], safe='')}".encode(), form)


async def _tables(dsn: str, url: str) -> dict[str, bytes]:
    schema = url.rpartition("schema=")[2]
    named = await run(
        dsn, "SELECT table_name FROM information_schema.tables WHERE table_schema = $1", schema
    )
    found = {}
    for (name,) in named:
        rows = await run(dsn, 'SELECT * FROM "@".'.replace("@", schema) + str(name))
        values = [value for row in rows for value in row]
        found[f"table {name}"] = b"\n".join(
            value if isinstance(value, bytes) else str(value).encode() for value in values
        )
    return found
