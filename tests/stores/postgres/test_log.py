"""Whoever follows the log of a cassette misses no change, and ends where a fresh reader begins."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.matching.rules import Rules, meta_with_rules
from tapeway.core.model.interaction import Interaction
from tapeway.errors import CassetteCorrupt
from tapeway.stores.postgres.operations import log
from tapeway.stores.postgres.pool import Session
from tapeway.stores.postgres.schema import VERSION
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres.inside import pool_of
from tests.stores.postgres_server import run
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import instances, with_step

RULES = replace(HEAD, meta=meta_with_rules(HEAD.meta, Rules(ignore=("body.user",))))


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with instances(lambda: PostgresStore(postgres_url), 4) as opened:
        yield [store for store in opened if isinstance(store, PostgresStore)]


class Follower:
    """Keeps the live rows of a cassette, as an index does."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.seen = 0
        self.token = ""
        self.pages = 0
        self.held: dict[int, tuple[int, int, bytes | None, int]] = {}

    async def follow(self) -> None:
        while (page := await self._store.since("x", self.seen)) is not None:
            self.pages += 1
            if page.token != self.token:
                self.token, before, self.seen = page.token, self.seen, 0
                self.held.clear()
                if before:
                    continue
            for row in page.rows:
                self.held.pop(row.number, None)
                if row.live:
                    self.held[row.number] = row.place, row.take, row.key, row.marks
            self.seen = page.seen
            if self.seen == page.revision:
                return


async def _fresh(store: PostgresStore) -> Follower:
    fresh = Follower(store)
    await fresh.follow()
    return fresh


async def test_no_row_is_skipped_while_four_instances_record_replace_and_remove(
    stores: list[PostgresStore],
) -> None:
    follower, recording_now = Follower(stores[0]), True
    await stores[0].append("x", HEAD, recording(0))

    async def write(of: int, store: PostgresStore) -> None:
        for number in range(30):
            at = 1 + 4 * number + of
            await store.append("x", HEAD, with_step(recording(at), 1))
            if number % 5 == 4:
                await store.append("x", HEAD, recording(1000 + at, at))
            if number % 7 == 6:
                await store.edit("x", at - 4, None)
            if number % 11 == 10:
                await store.edit("x", at, recording(at, body=b'{"m":"edited"}').interaction)

    async def follow() -> None:
        while recording_now:
            await follower.follow()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await asyncio.gather(*[write(of, store) for of, store in enumerate(stores)])
        recording_now = False
    await follower.follow()

    assert follower.held == (await _fresh(stores[1])).held
    loaded = await stores[1].load("x", writable=False)
    assert loaded is not None
    assert {*follower.held} == {item.index for item in loaded.interactions}
    assert len(follower.held) > 100
    assert follower.pages > 50


async def test_a_long_log_is_read_by_pages(
    stores: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PAGE", 3)
    for number in range(7):
        await stores[0].append("x", HEAD, recording(number))

    follower = await _fresh(stores[1])

    assert [*follower.held] == [*range(7)]
    assert follower.pages == 3


async def test_a_page_of_a_long_log_reads_its_own_rows_alone(
    postgres_url: str, postgres_dsn: str
) -> None:
    store = PostgresStore(postgres_url)
    await store.open()
    try:
        await store.append("x", HEAD, recording(0))
        schema = postgres_url.rpartition("schema=")[2]
        for sql in (
            """INSERT INTO "{0}".log SELECT cassette, 1 + n, n, n, 0, int8send(n), NULL, 0, true
            FROM "{0}".log, generate_series(1, 20000) AS n""",
            'UPDATE "{0}".cassette SET revision = 20001',
            'ANALYZE "{0}".log',
        ):
            await run(postgres_dsn, sql.format(schema))

        async def rows_read(session: Session) -> int:
            (found,) = await session.rows(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {log.SINCE}", "x", 5000, log.PAGE
            )
            plans, total = [json.loads(found["QUERY PLAN"])[0]["Plan"]], 0
            while plans:
                plan = plans.pop()
                plans += plan.get("Plans", [])
                total += plan["Actual Rows"] * plan["Actual Loops"]
            return int(total)

        assert await pool_of(store).read("explain", rows_read) < 10 * log.PAGE
    finally:
        await store.close()


async def test_rows_have_the_match_keys_by_the_rules_in_force(
    stores: list[PostgresStore],
) -> None:
    await stores[0].append("x", HEAD, recording(0))
    follower = await _fresh(stores[1])

    await stores[0].replace_head("x", RULES)
    await stores[0].append("x", RULES, recording(1))
    await follower.follow()

    loaded = await stores[0].load("x", writable=False)
    assert loaded is not None
    assert [key for _, _, key, _ in follower.held.values()] == [
        recording_key(item, Rules(ignore=("body.user",)))
        for item in loaded.interactions
        if isinstance(item, Interaction)
    ]


async def test_a_missing_row_is_found_out(
    stores: list[PostgresStore], postgres_url: str, postgres_dsn: str
) -> None:
    for number in range(3):
        await stores[0].append("x", HEAD, recording(number))
    schema = postgres_url.rpartition("schema=")[2]
    await run(postgres_dsn, f'DELETE FROM "{schema}".log WHERE revision = 2')  # noqa: S608

    with pytest.raises(CassetteCorrupt, match="its log lacks rows after revision 0: save"):
        await stores[1].since("x", 0)
    assert await stores[1].since("nothing", 0) is None


async def test_tables_of_the_version_before_get_their_logs(
    postgres_url: str, postgres_dsn: str
) -> None:
    before = PostgresStore(postgres_url)
    await before.open()
    for number in range(450):
        await before.append("x", HEAD, recording(number))
    await before.append("x", HEAD, recording(500, 3))
    await before.replace_head("x", RULES)
    written = await _fresh(before)
    stored = await before.load("x", writable=False)
    await before.close()
    schema = postgres_url.rpartition("schema=")[2]
    for sql in (
        'DROP TABLE "{}".log',
        """INSERT INTO "{0}".key SELECT cassette, 1, sha256(document), number FROM "{0}".interaction""",
        'CREATE TABLE "{}".used (name text, take bigint, shard integer, count bigint)',
        """CREATE FUNCTION "{}".count_touched() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RETURN NULL; END $$""",
        """CREATE FUNCTION "{}".count_untouched() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RETURN NULL; END $$""",
        'CREATE TRIGGER touched_added AFTER INSERT OR UPDATE ON "{0}".touched '
        'FOR EACH ROW EXECUTE FUNCTION "{0}".count_touched()',
        'CREATE TRIGGER touched_removed AFTER DELETE ON "{0}".touched '
        'FOR EACH STATEMENT EXECUTE FUNCTION "{0}".count_untouched()',
        'ALTER TABLE "{}".source ADD COLUMN changes bigint',
        'ALTER TABLE "{}".instance ADD COLUMN process text, ADD COLUMN generation bigint',
        'UPDATE "{}".version SET number = 9',
    ):
        await run(postgres_dsn, sql.format(schema))

    opened = [PostgresStore(postgres_url) for _ in range(3)]
    await asyncio.gather(*[store.open() for store in opened])
    try:
        assert (await _fresh(opened[0])).held == written.held
        assert await opened[1].load("x", writable=False) == stored
        await opened[2].append("x", HEAD, recording(501))
        assert 501 in (await _fresh(opened[0])).held
    finally:
        for store in opened:
            await store.close()
    versions = await run(postgres_dsn, f'SELECT number FROM "{schema}".version')  # noqa: S608
    assert [number for (number,) in versions] == [VERSION]
    assert await run(postgres_dsn, f'SELECT 1 FROM "{schema}".key') == []  # noqa: S608
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"  # noqa: S608
    assert "used" not in [table for (table,) in await run(postgres_dsn, tables)]
