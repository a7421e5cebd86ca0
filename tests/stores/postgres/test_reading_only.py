"""A role that may only read, and a hot standby: both replay, with takes of their own."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tapeway.errors import StoreError
from tapeway.stores.postgres.store import PostgresStore
from tests.process.counting_upstream import Upstream
from tests.process.serving import USAGE, Tapeway, refused
from tests.stores.postgres.test_store import role, schema_of
from tests.stores.postgres_server import PostgresServer, fresh, run

LARGE = 3 * 2**20
RECORDED = ("/a", "/a", "/large")


@asynccontextmanager
async def recorded(folder: Path, url: str) -> AsyncIterator[Upstream]:
    """A cassette in the database: two responses to one request, and a large one."""
    async with Upstream(size=LARGE) as upstream:
        options = ("--store", url, "--upstream", upstream.url, "--mode", "record")
        async with Tapeway(folder, *options) as tapeway:
            for target in RECORDED:
                assert (await tapeway.ask(target)).status == 200
        yield upstream


def rights(schema: str) -> tuple[str, ...]:
    """What lets a role read, and no more."""
    return (
        f"GRANT USAGE ON SCHEMA {schema} TO {{role}}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {{role}}",
    )


async def check_replay(folder: Path, url: str, upstream: Upstream) -> None:
    """Replays in order, in takes of this process alone, and records nothing."""
    asked = dict(upstream.asks)
    options = ("--store", url, "--upstream", upstream.url)
    async with Tapeway(folder, *options, "--mode", "replay") as tapeway:

        async def interactions(count: int) -> list[bytes]:
            answers = [await tapeway.ask("/a") for _ in range(count)]
            return [response.value(b"Tapeway-Interaction") for response in answers]

        assert await interactions(3) == [b"0", b"1", b"1"]
        assert (await tapeway.admin("POST", "/api/v1/rewind", {}))[0] == 200
        assert await interactions(2) == [b"0", b"1"]
        assert (await tapeway.ask("/large")).body == upstream.only_answer("/large")
        assert (await tapeway.ask("/missing")).status == 400
        assert (await tapeway.admin("GET", "/readyz"))[0] == 200
        report = (await tapeway.admin("GET", "/api/v1/report"))[1]["cassettes"][0]
        assert (report["replayed"], len(report["misses"]), report["unused"]) == (6, 1, [])

        assert (await tapeway.admin("PUT", "/api/v1/mode", {"mode": "record"}))[0] == 200
        answer = await tapeway.ask("/new")
        assert answer.status == 503
        assert "can only be read" in json.loads(answer.body)["error"]["message"]
    assert upstream.asks == asked

    for mode in ("auto", "record"):
        code, message = await refused(folder, *options, "--mode", mode)
        assert (code, "can only be read" in message) == (USAGE, True), message


async def test_a_role_that_may_only_read_replays(
    tmp_path: Path, postgres_url: str, postgres_dsn: str
) -> None:
    schema = schema_of(postgres_url)
    async with (
        recorded(tmp_path, postgres_url) as upstream,
        role(postgres_dsn, *rights(schema)) as dsn,
    ):
        await check_replay(tmp_path, f"{dsn}?schema={schema}", upstream)


@pytest.mark.slow
async def test_a_hot_standby_replays(tmp_path: Path, postgres_server: PostgresServer) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tapeway-standby-"))
    try:
        async with fresh(postgres_server.dsn) as url, recorded(tmp_path, url) as upstream:
            # The copy has what is committed now; what comes later is streamed to it.
            with postgres_server.standby(folder) as standby:
                assert await run(standby.dsn, "SELECT pg_is_in_recovery()") == [[True]]
                await check_replay(tmp_path, f"{standby.dsn}?schema={schema_of(url)}", upstream)
                await check_what_is_new(tmp_path, url, standby, upstream)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def check_what_is_new(
    folder: Path, url: str, standby: PostgresServer, upstream: Upstream
) -> None:
    """What is recorded on the primary meanwhile is replayed from the standby."""
    other = folder / "other"
    other.mkdir()
    following = ("--store", f"{standby.dsn}?schema={schema_of(url)}", "--mode", "replay")
    recording = ("--store", url, "--mode", "auto", "--upstream", upstream.url)
    async with Tapeway(other, *following) as replaying, Tapeway(folder, *recording) as tapeway:
        assert (await replaying.ask("/a")).status == 200
        assert (await tapeway.ask("/later")).status == 200
        for _ in range(600):
            if (answer := await replaying.ask("/later")).status == 200:
                break
            await asyncio.sleep(0.1)
        assert answer.body == upstream.only_answer("/later")


async def test_what_several_processes_use_needs_a_role_that_may_write(
    postgres_url: str, postgres_dsn: str
) -> None:
    schema = schema_of(postgres_url)
    store = PostgresStore(postgres_url)
    await store.open()
    await store.close()
    async with role(postgres_dsn, *rights(schema)) as dsn:
        reading = PostgresStore(f"{dsn}?schema={schema}")
        await reading.open()
        try:
            assert reading.shared is None
            with pytest.raises(StoreError, match="can only be read"):
                await reading.load("x", writable=True)
            with pytest.raises(StoreError, match="can only be read"):
                await reading.check_writes()
        finally:
            await reading.close()
