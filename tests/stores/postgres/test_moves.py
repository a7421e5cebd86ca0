"""The steps of cursors that wait together: what they cost, and what is in their way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tapeway.core.model.control import CursorMove
from tapeway.errors import StoreAway, StoreFull
from tapeway.stores.postgres import moves as moves_module
from tapeway.stores.postgres.operations.rows import indexable
from tapeway.stores.postgres.pool import Session
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.contract.test_shared_moves import Moves
from tests.stores.postgres.inside import fill, pool_of
from tests.stores.postgres.statements import Cut, Statements
from tests.stores.shared_instances import (
    advanced,
    append_recordings,
    cursors_of,
    instances,
    key,
    seen_of,
    used,
)
from tests.support.fakes.broker import until

COUNT = 40


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return Statements(monkeypatch)


@pytest.fixture
async def pair(postgres_url: str, statements: Statements) -> AsyncIterator[list[PostgresStore]]:
    async with instances(lambda: PostgresStore(f"{postgres_url}&connections=2")) as stores:
        await append_recordings(stores[0], 0, 1)
        yield [store for store in stores if isinstance(store, PostgresStore)]


async def test_steps_that_come_together_are_one_statement_and_those_that_come_meanwhile_another(
    pair: list[PostgresStore], statements: Statements
) -> None:
    moves, seen = Moves(pair[0]), await seen_of(pair[0])
    statements.executed.clear()
    statements.gate.clear()
    for number in range(COUNT):
        moves.begin(number, None, b"1", seen=seen)
    await until(lambda: statements.moves == 1)
    before: CursorMove | None = None
    for number in range(COUNT):
        moves.begin(COUNT + number, None, b"1", seen=seen)
        before = moves.begin(2 * COUNT, before, b"%d" % number, seen=seen)
    statements.gate.set()

    assert all(move.after is not None for move in await moves.settled(3 * COUNT))
    assert statements.moves == len(statements.executed) == 2


async def test_no_more_cursors_than_it_may_are_moved_by_one_statement(
    pair: list[PostgresStore], statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves_module, "MOST", 3)
    moves = Moves(pair[0])
    last: CursorMove | None = None
    for number in range(10):
        last = moves.begin(0, last, b"%d" % number)
        moves.begin(1 + number, None, b"1")

    assert all(move.after is not None for move in await moves.settled(20))
    assert statements.moves == 5


async def test_they_are_made_where_all_connections_of_the_pool_are_in_use(
    pair: list[PostgresStore],
) -> None:
    one, moves, done = pair[0], Moves(pair[0]), asyncio.Event()

    async def hold(_: Session) -> None:
        await done.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(pool_of(one).read("hold", hold))
        await asyncio.sleep(0)
        moves.begin(0, None, b"1")
        assert (await moves.settled(1))[0].after is not None
        done.set()


async def test_a_cursor_that_another_transaction_holds_keeps_none_waiting(
    pair: list[PostgresStore],
) -> None:
    one, other = pair
    moves = Moves(one)
    held, free = moves.begin(0, None, b"1"), moves.begin(1, None, b"1")
    await moves.settled(2)

    async def meanwhile(session: Session) -> None:
        await session.rows("SELECT state FROM @turn WHERE key = $1 FOR UPDATE", key(0))
        late, made = moves.begin(0, held, b"2"), moves.begin(1, free, b"2")
        await moves.settled(4)
        assert late.after is None
        assert made.after is not None
        assert made.after.state == b"2"

    await pool_of(other).write("hold a cursor", meanwhile)


async def test_where_a_cursor_that_begins_is_held_all_steps_are_refused_and_none_is_made(
    pair: list[PostgresStore], statements: Statements
) -> None:
    one, other = pair
    moves = Moves(one)

    async def meanwhile(session: Session) -> None:
        await session.run("INSERT INTO @turn VALUES ('x', 1, $1, '1', 1)", key(0))
        moves.begin(0, None, b"2")
        moves.begin(1, None, b"1")
        assert [move.after for move in await moves.settled(2)] == [None, None]

    await pool_of(other).write("begin a cursor", meanwhile)

    assert statements.moves == 1
    assert [*await cursors_of(one, "x", 1, [key(0), key(1)])] == [key(0)]


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_steps_in_doubt_are_made_once(
    pair: list[PostgresStore], statements: Statements, cut: Cut
) -> None:
    one, other = pair
    moves, seen = Moves(one), await seen_of(one)
    first = moves.begin(0, None, b"1", touched=0, seen=seen)
    await moves.settled(1)
    statements.cuts += ["before", cut, "after"]
    second = moves.begin(0, first, b"2", touched=1, seen=seen)
    third = moves.begin(0, second, b"3", seen=seen)
    begun = moves.begin(1, None, b"1", seen=seen)
    await moves.settled(4)

    assert statements.cuts == []
    found = await cursors_of(other, "x", 1, [key(0), key(1)])
    assert found == {key(0): third.after, key(1): begun.after}
    assert [cursor.state for cursor in found.values()] == [b"3", b"1"]
    assert await used(other, 1) == [0, 1]


async def test_of_steps_that_may_have_been_made_the_error_says_that_the_store_is_away(
    pair: list[PostgresStore], statements: Statements
) -> None:
    moves = Moves(pair[0])
    statements.cuts += ["after"] * 4
    moves.begin(0, None, b"1")
    moves.begin(1, None, b"1")
    await until(lambda: len(moves.told) == 2)

    errors = [refused for _, refused in moves.told]
    assert [type(error) for error in errors] == [StoreAway] * 2
    assert errors[0] is not errors[1]
    assert "could not advance cursors" in str(errors[0])
    assert [move.after for move, _ in moves.told] == [None, None]


async def test_of_steps_that_come_together_those_that_find_room_are_made(
    pair: list[PostgresStore], postgres_dsn: str
) -> None:
    one = pair[0]
    moves, seen = Moves(one), await seen_of(one)
    which = f"FOR EACH ROW WHEN (NEW.key = decode('{indexable(key(1)).hex()}', 'hex'))"
    await fill(postgres_dsn, pool_of(one).address.schema, "turn", which)
    stays = moves.begin(0, None, None, seen=seen)
    finds_none = moves.begin(1, None, b"1", seen=seen)
    finds_room = moves.begin(2, None, b"1", seen=seen)
    await until(lambda: len(moves.told) == 3)

    errors = {id(move): refused for move, refused in moves.told}
    assert (errors[id(stays)], errors[id(finds_room)]) == (None, None)
    assert isinstance(errors[id(finds_none)], StoreFull)
    assert [move.after is not None for move in (stays, finds_none, finds_room)] == [
        *(True, False, True)
    ]


async def test_a_step_whose_commit_is_still_to_come_is_waited_for_when_it_is_tried_again(
    pair: list[PostgresStore], statements: Statements
) -> None:
    one, other = pair
    moves = Moves(one)
    first = moves.begin(0, None, b"1")
    await moves.settled(1)

    async def lost(session: Session) -> None:
        # What the statement on the lost connection did, which the server has not committed yet.
        await session.rows("SELECT state FROM @turn WHERE key = $1 FOR UPDATE", key(0))
        statements.cuts.append("before")
        moves.begin(0, first, b"2")
        await until(lambda: statements.moves == 3)
        sql = "UPDATE @turn SET state = $2, version = version + 1 WHERE key = $1 RETURNING version"
        row = await session.row(sql, key(0), b"2")
        assert row is not None
        sql = "UPDATE @mover SET attempt = $2::text::uuid, made = $3 WHERE id = $1::text::uuid"
        await session.run(sql, *statements.arguments[10:12], f"1:{row['version']}")

    await pool_of(other).write("hold a cursor", lost)

    (turn,) = (await cursors_of(other, "x", 1, [key(0)])).values()
    assert turn.state == b"2"
    assert (await moves.settled(2))[1].after == turn


async def test_a_step_in_doubt_counts_as_made_though_another_instance_has_gone_on_since(
    pair: list[PostgresStore], statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    await advanced(one, "x", 1, key(0), None, b"1", 0)
    (turn,) = (await cursors_of(one, "x", 1, [key(0)])).values()
    follow = Statements.follow

    async def overtaken(these: Statements, session: Session, sql: str, *args: object) -> object:
        try:
            return await follow(these, session, sql, *args)
        except ConnectionResetError:
            (now,) = (await cursors_of(other, "x", 1, [key(0)])).values()
            assert await advanced(other, "x", 1, key(0), now, b"3", 0)
            raise

    monkeypatch.setattr(Statements, "follow", overtaken)
    statements.cuts.append("after")
    made = await advanced(one, "x", 1, key(0), turn, b"2", 0)

    assert made is not None
    assert made.state == b"2"
    (turn,) = (await cursors_of(one, "x", 1, [key(0)])).values()
    assert turn.state == b"3"
