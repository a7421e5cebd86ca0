"""Steps of cursors that nobody waits for in a task: which of them are made."""

import asyncio
from dataclasses import dataclass, field

import pytest

from tapeway.core.model.control import CursorMove, CursorState, SeenCassette
from tapeway.ports import SharedStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import (
    advanced,
    append_recordings,
    cursors_of,
    key,
    seen_of,
    used,
)
from tests.support.fakes.broker import until

COUNT = 150


@pytest.fixture
async def store(pair: list[SharedStore]) -> SharedStore:
    return pair[0]


@dataclass
class Moves:
    """Steps of one store, and what was told of them."""

    store: SharedStore
    told: list[tuple[CursorMove, BaseException | None]] = field(default_factory=list)

    @property
    def mover(self) -> SharedStore:
        mover = self.store
        assert mover is not None
        return mover

    def begin(
        self,
        number: int,
        before: CursorState | CursorMove | None,
        state: bytes | None,
        *,
        touched: int | None = None,
        seen: SeenCassette | None = None,
    ) -> CursorMove:
        """Ask for a step of the cursor of a recording."""
        move = CursorMove("x", 1, key(number), before, state, touched, seen)
        self.mover.advance(move, lambda *told: self.told.append(told))
        return move

    async def settled(self, count: int) -> list[CursorMove]:
        """Wait for so many to be told of, none with an error."""
        await until(lambda: len(self.told) >= count)
        assert [refused for _, refused in self.told] == [None] * count
        return [move for move, _ in self.told]


async def _seen(store: SharedStore) -> SeenCassette:
    return await seen_of(store)


async def test_each_of_many_steps_is_made_and_told_of(pair: list[SharedStore]) -> None:
    one, other = pair
    await append_recordings(one, 0)
    moves, seen = Moves(one), await _seen(one)
    begun = [moves.begin(number, None, b"%d" % number, seen=seen) for number in range(COUNT)]

    assert {id(move) for move in await moves.settled(COUNT)} == {*map(id, begun)}
    found = await cursors_of(other, "x", 1, [key(number) for number in range(COUNT)])
    assert found == {move.key: move.after for move in begun}
    assert [found[key(number)].state for number in range(COUNT)] == [
        b"%d" % n for n in range(COUNT)
    ]


async def test_steps_of_one_cursor_go_on_from_each_other(pair: list[SharedStore]) -> None:
    one, other = pair
    await append_recordings(one, 0)
    moves, seen = Moves(one), await _seen(one)
    before: CursorMove | None = None
    for round_ in (range(5), range(5, 9)):
        for number in round_:
            before = moves.begin(0, before, b"%d" % number, seen=seen)
        await moves.settled(round_.stop)

    versions = [move.after.version for move, _ in moves.told if move.after is not None]
    assert len({*versions}) == 9
    (turn,) = (await cursors_of(other, "x", 1, [key(0)])).values()
    assert before is not None
    assert turn == before.after
    assert turn.state == b"8"


async def test_where_one_step_is_refused_those_that_go_on_from_it_are(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0)
    moves, seen = Moves(one), await _seen(one)
    known = moves.begin(0, None, b"1", seen=seen)
    await moves.settled(1)
    assert await advanced(other, "x", 1, key(0), known.after, b"2", 0)

    late = moves.begin(0, known, b"late", seen=seen)
    later = moves.begin(0, late, b"later", seen=seen)
    free = moves.begin(1, None, b"free", seen=seen)
    await moves.settled(4)
    last = moves.begin(0, later, b"last", seen=seen)
    await moves.settled(5)

    assert [late.after, later.after, last.after] == [None] * 3
    assert free.after is not None
    found = await cursors_of(other, "x", 1, [key(0), key(1)])
    assert [found[key(number)].state for number in (0, 1)] == [b"2", b"free"]


async def test_of_equal_steps_the_first_is_made(store: SharedStore) -> None:
    await append_recordings(store, 0)
    moves = Moves(store)
    begun = [moves.begin(0, None, b"%d" % number) for number in range(9)]
    await moves.settled(9)

    assert [move.after is not None for move in begun] == [True] + [False] * 8
    assert (await cursors_of(store, "x", 1, [key(0)])) == {key(0): begun[0].after}


async def test_a_step_in_a_cassette_that_was_changed_is_refused_and_others_are_made(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0)
    moves, stale = Moves(one), await _seen(one)
    first = moves.begin(0, None, b"1", seen=stale)
    await moves.settled(1)
    await other.append("x", HEAD, recording(1))

    fresh = await _seen(one)
    refused = moves.begin(0, first, b"2", touched=0, seen=stale)
    made = moves.begin(1, None, b"1", touched=1, seen=fresh)
    await moves.settled(3)

    assert refused.after is None
    assert made.after is not None
    assert await used(other, 1) == [1]


async def test_what_a_step_touched_counts_as_used(pair: list[SharedStore]) -> None:
    one, other = pair
    await append_recordings(one, 0, 1, 2, 3)
    moves, seen = Moves(one), await _seen(one)
    step = moves.begin(0, None, b"1", touched=0, seen=seen)
    moves.begin(0, step, b"2", touched=2, seen=seen)
    moves.begin(1, None, b"1", touched=2, seen=seen)
    moves.begin(2, None, b"1", seen=seen)
    await moves.settled(4)

    assert await used(other, 1) == [0, 2]


async def test_instances_that_step_at_once_never_make_the_same_step(
    pair: list[SharedStore],
) -> None:
    await append_recordings(pair[0], 0)
    made: list[bytes] = []

    async def one_of(store: SharedStore, number: int) -> None:
        while len(made) < COUNT:
            now = (await cursors_of(store, "x", 1, [key(0)])).get(key(0))
            state = b"%d" % (1 + (0 if now is None else int(now.state)))
            moves = Moves(store)
            step = moves.begin(0, now, state)
            moves.begin(number, None, b"1")
            await moves.settled(2)
            if step.after is not None:
                made.append(state)

    async with asyncio.TaskGroup() as tasks:
        for number, store in enumerate(pair, 1):
            tasks.create_task(one_of(store, number))

    assert sorted(made, key=int) == [b"%d" % number for number in range(1, len(made) + 1)]


async def test_a_cursor_that_stays_is_compared_with_its_cassette_alone(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0)
    moves, seen = Moves(one), await _seen(one)
    first = moves.begin(0, None, b"1", touched=0, seen=seen)
    await moves.settled(1)
    assert await advanced(other, "x", 1, key(0), first.after, b"2", 0)

    stays = moves.begin(0, first.after, None, seen=seen)
    goes = moves.begin(1, None, b"1", seen=seen)
    await moves.settled(3)
    assert stays.after is not None
    assert goes.after is not None
    assert (await cursors_of(other, "x", 1, [key(0)]))[key(0)].state == b"2"

    await other.append("x", HEAD, recording(1))
    late = moves.begin(0, first.after, None, seen=seen)
    absent = CursorMove("y", 1, key(0), None, None, None, seen)
    moves.mover.advance(absent, lambda *told: moves.told.append(told))
    await moves.settled(5)
    assert (late.after, absent.after) == (None, None)
