"""What instances of one store know of each other: turns, leases, and what is in force."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tapeway.core.model.control import Control, CursorMove, CursorState, with_mode, with_take
from tapeway.errors import StoreAway
from tapeway.ports import SharedStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import (
    WANTED,
    NewInstance,
    advanced,
    append_recordings,
    cursors_of,
    found_indexes,
    instances,
    key,
    log_of,
    next_state,
    other_answer,
    recordings_under,
    seen_of,
    used,
    with_step,
)


@pytest.fixture
async def store(pair: list[SharedStore]) -> SharedStore:
    return pair[0]


# Turns.


async def test_a_turn_is_advanced_by_one_of_two(pair: list[SharedStore]) -> None:
    one, other = pair
    assert await cursors_of(one, "x", 1, [key(0)]) == {}
    assert await advanced(one, "x", 1, key(0), None, b"first", 0)
    assert not await advanced(other, "x", 1, key(0), None, b"lost", 0)

    now = (await cursors_of(other, "x", 1, [key(0), key(1)]))[key(0)]
    assert now.state == b"first"
    assert await advanced(other, "x", 1, key(0), now, b"second", 0)
    assert not await advanced(one, "x", 1, key(0), now, b"lost", 0)
    again_now = (await cursors_of(one, "x", 1, [key(0)]))[key(0)]
    assert again_now.state == b"second"
    assert again_now.version != now.version


async def test_who_reads_the_log_after_a_cursor_knows_the_recordings_that_moved_it(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    assert await other.cursors("x", 3, [key(0)]) == {}
    assert await other.since("x", 0) is None
    await one.append("x", HEAD, with_step(recording(0), 3))
    await one.append("x", HEAD, with_step(other_answer(0, 1), 3))

    turns = await other.cursors("x", 3, [key(0), key(1)])
    assert {name: turn.state for name, turn in turns.items()} == {key(0): b"2"}
    assert [row.number for row in await log_of(other, "x")] == [0, 1]
    found = await recordings_under(other, "x", [key(0), b"nothing"])
    assert found_indexes(found) == [0, 1]
    assert found == await recordings_under(one, "x", [key(0)])
    assert await other.cursors("x", 4, [key(0)]) == {}


async def test_turns_of_takes_and_cassettes_do_not_mix(store: SharedStore) -> None:
    assert await advanced(store, "x", 1, key(0), None, b"1", 0)
    assert await advanced(store, "x", 2, key(0), None, b"2", 0)
    assert await advanced(store, "y", 1, key(0), None, b"3", 0)

    assert (await cursors_of(store, "x", 1, [key(0)]))[key(0)].state == b"1"
    assert (await cursors_of(store, "x", 2, [key(0)]))[key(0)].state == b"2"
    assert (await cursors_of(store, "y", 1, [key(0)]))[key(0)].state == b"3"


async def test_turns_are_dense_whoever_takes_them(pair: list[SharedStore]) -> None:
    given: list[int] = []

    async def take_turns(store: SharedStore, count: int) -> None:
        for _ in range(count):
            while True:
                before: CursorState | None = (await cursors_of(store, "x", 1, [key(0)])).get(key(0))
                state = next_state(before.state if before else None)
                if await advanced(store, "x", 1, key(0), before, state, 0):
                    given.append(int(state))
                    break

    async with asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(take_turns(pair[number % 2], 20))

    assert sorted(given) == list(range(1, 121))


async def test_a_recording_moves_its_turn_with_it(pair: list[SharedStore]) -> None:
    one, other = pair
    assert await advanced(other, "x", 3, key(0), None, b"4", 8)
    await one.append("x", HEAD, with_step(recording(0), 3))

    assert (await cursors_of(other, "x", 3, [key(0)]))[key(0)].state == b"5"
    assert await used(other, 3) == [0]
    (found,) = await recordings_under(other, "x", [key(0)])
    assert found.take == 3


async def test_a_removed_cassette_comes_back_with_nothing_used(pair: list[SharedStore]) -> None:
    one, other = pair
    await one.append("x", HEAD, with_step(recording(0), 3))
    assert await one.remove("x")
    await append_recordings(other, 0)

    assert await cursors_of(other, "x", 3, [key(0)]) == {}
    assert await used(other, 3) == []


async def _made(store: SharedStore, moves: Sequence[CursorMove]) -> None:
    """Have these steps be made, or refused."""
    told = asyncio.Queue[CursorMove]()
    for move in moves:
        store.advance(move, lambda made, _: told.put_nowait(made))
    for _ in moves:
        await told.get()


# Leases.


async def test_a_lease_is_held_by_one(pair: list[SharedStore]) -> None:
    one, other = pair
    lease = await one.claim("x", key(0))
    assert lease is not None
    assert await other.claim("x", key(0)) is None
    assert await one.claim("x", key(0)) is None
    assert await other.claim("x", key(1)) is not None
    assert await other.claim("y", key(0)) is not None

    await one.release_lease(lease)
    later = await other.claim("x", key(0))
    assert later is not None
    assert later.fence != lease.fence
    # It is no longer one's to give.
    await one.release_lease(lease)
    assert await one.claim("x", key(0)) is None


async def test_of_many_who_claim_one_gets_it(pair: list[SharedStore]) -> None:
    claimed = await asyncio.gather(*[pair[n % 2].claim("x", key(0)) for n in range(20)])

    assert len([lease for lease in claimed if lease is not None]) == 1


async def test_a_claim_whose_caller_was_cancelled_holds_nobody_up(pair: list[SharedStore]) -> None:
    one, other = pair
    for number in range(12):
        async with asyncio.TaskGroup() as tasks:
            claiming = tasks.create_task(one.claim("x", key(number)))
            for _ in range(number):
                await asyncio.sleep(0)
            claiming.cancel()
        if not claiming.cancelled() and (lease := claiming.result()) is not None:
            await one.release_lease(lease)
    async with asyncio.timeout(60):
        for number in range(12):
            while await other.claim("x", key(number), wait=True) is None:
                pass


async def test_who_waits_hears_of_a_lease_given_back(pair: list[SharedStore]) -> None:
    one, other = pair
    lease = await one.claim("x", key(0))
    assert lease is not None
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(other.claim("x", key(0), wait=True))
        await one.release_lease(lease)
        if await waiting is None:
            assert await other.claim("x", key(0), wait=True) is not None


async def test_leases_of_an_instance_that_leaves_are_free(new_instance: NewInstance) -> None:
    async with instances(new_instance) as (one, other):
        assert await one.claim("x", key(0)) is not None
        await one.close()

        assert await other.claim("x", key(0)) is not None


async def test_all_see_which_leases_are_held_for_a_cassette(pair: list[SharedStore]) -> None:
    one, other = pair
    leases = [await pair[n % 2].claim("x", key(n)) for n in range(3)]
    elsewhere = await one.claim("y", key(0))
    held = {lease.fence for lease in leases if lease is not None}
    assert await one.fences("x") == await other.fences("x") == held
    assert len(held) == 3

    first, second, third = leases
    assert first is not None
    assert second is not None
    assert third is not None
    assert elsewhere is not None
    await one.append("x", HEAD, with_step(recording(0), 1, lease=first))
    await one.release_lease(first)
    await other.release_lease(second)
    assert await other.fences("x") == {third.fence}
    assert await other.fences("y") == {elsewhere.fence}
    assert await one.fences("z") == frozenset()


async def test_a_lease_of_an_instance_that_left_is_seen_no_more(new_instance: NewInstance) -> None:
    async with instances(new_instance) as (one, other):
        assert await one.claim("x", key(0)) is not None
        await one.close()

        assert await other.fences("x") == frozenset()


async def test_a_recording_with_a_lease_is_written(pair: list[SharedStore]) -> None:
    one, other = pair
    lease = await one.claim("x", key(0))
    assert lease is not None
    await one.append("x", HEAD, with_step(recording(0), 1, lease=lease))
    await one.release_lease(lease)

    assert found_indexes(await recordings_under(other, "x", [key(0)])) == [0]
    # The next owner's recording, too.
    lease = await other.claim("x", key(0))
    assert lease is not None
    await other.append("x", HEAD, with_step(other_answer(0, 1), 1, lease=lease))
    assert found_indexes(await recordings_under(one, "x", [key(0)])) == [0, 1]


# Steering.


async def test_the_first_instance_gets_what_it_wants(pair: list[SharedStore]) -> None:
    one, other = pair
    heard: list[Control] = []

    first = await one.join(replace(WANTED, mode="replay", active="a"), heard.append)
    second = await other.join(replace(WANTED, mode="record", active="b"), heard.append)

    assert (first.mode, first.active) == ("replay", "a")
    assert first.takes >= 1
    assert first.take_of("a") == first.takes
    assert second == first
    assert heard == []
    assert one.trouble is None
    assert other.trouble is None


async def test_a_change_that_was_answered_is_in_force_for_all_that_ask_later(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    here: list[Control] = []
    there: list[Control] = []
    before = await one.join(WANTED, here.append)
    await other.join(WANTED, there.append)

    control = await one.steer(lambda now: with_mode(now, "replay"))
    await other.confirm()

    assert control.mode == "replay"
    assert control.takes == before.takes + 1
    assert control.generation > before.generation
    assert here[-1] == control
    assert there[-1] == control

    control = await other.steer(lambda now: with_mode(now, "record", "y"))
    # Of many who ask at once, each knows.
    await asyncio.gather(*[one.confirm() for _ in range(20)])
    assert here[-1] == there[-1] == control
    assert control.mode_of("y") == "record"
    assert control.mode_of("x") == "replay"
    assert [state.generation for state in here] == sorted({state.generation for state in here})


async def test_changes_at_once_are_all_made(pair: list[SharedStore]) -> None:
    heard: list[Control] = []
    before = await pair[0].join(WANTED, heard.append)
    await pair[1].join(WANTED, heard.append)

    steered = await asyncio.gather(*[pair[n % 2].steer(with_take) for n in range(10)])

    takes = sorted(control.takes for control in steered)
    assert takes == list(range(before.takes + 1, before.takes + 11))


async def test_takes_go_on_where_all_instances_left_off(new_instance: NewInstance) -> None:
    async with instances(new_instance, 1) as (one,):
        await one.join(WANTED, lambda _: None)
        left = await one.steer(with_take)

    async with instances(new_instance, 1) as (one,):
        joined = await one.join(replace(WANTED, mode="record"), lambda _: None)

    assert joined.mode == "record"
    assert joined.takes == joined.since == left.takes + 1


async def test_live_instances_are_named(new_instance: NewInstance) -> None:
    async with instances(new_instance) as (one, other):
        await one.join(WANTED, lambda _: None)
        await other.join(WANTED, lambda _: None)
        assert len(await one.instances()) == 2

        await other.close()

        assert len(await one.instances()) == 1


async def test_an_instance_that_cannot_apply_a_change_serves_nothing_until_it_can(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    refusing, applied = True, list[Control]()

    def apply(control: Control) -> None:
        if refusing:
            raise RuntimeError("not now")
        applied.append(control)

    await one.join(WANTED, lambda _: None)
    await other.join(WANTED, apply)
    steered = await one.steer(with_take)

    with pytest.raises(StoreAway):
        await other.confirm()
    refusing = False
    await other.confirm()

    assert applied == [steered]


async def test_a_step_that_was_decided_on_before_a_change_is_refused(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await one.append("x", HEAD, recording(0))
    joined = await one.join(WANTED, lambda _: None)
    await other.join(WANTED, lambda _: None)
    seen = await seen_of(one, 0)

    def move(of: int, generation: int, state: bytes | None) -> CursorMove:
        before = None if state else CursorState(b"1", 1)
        return CursorMove("x", of, key(0), before, state, None, seen, generation=generation)

    moves = [move(1, joined.generation, b"1"), move(1, joined.generation, None)]
    await _made(one, moves)
    assert [made.after is not None for made in moves] == [True, True]

    steered = await other.steer(with_take)

    moves = [
        *(move(2, joined.generation, b"1"), move(2, joined.generation, None)),
        *(move(3, steered.generation, b"1"), move(3, steered.generation, None)),
    ]
    await _made(one, moves)
    assert [made.after is not None for made in moves] == [False, False, True, True]
