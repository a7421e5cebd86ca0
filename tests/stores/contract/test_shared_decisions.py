"""What a shared store does in cases that each store once decided by itself."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from tapeway.core.correlation.index import MOST_ALIKE, alike_key_of, issued_key
from tapeway.core.json_text import dump
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import NO_RULES, Rules, meta_with_rules
from tapeway.core.misses.neighbours import MOST_NEWEST, NEIGHBOURS, Neighbours, sought
from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.core.model.control import CursorState
from tapeway.errors import Fenced, RecordingEdited
from tapeway.ports import Issuer, SharedStore
from tests.stores.contract.test_shared_moves import Moves
from tests.stores.large_bodies import kept, large
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.stores.shared_instances import (
    advanced,
    append_recordings,
    cursors_of,
    found_indexes,
    key,
    other_answer,
    turn,
    used,
    with_step,
)
from tests.stores.shared_instances import (
    found_bodies as bodies_of,
)

MIB = 1024 * 1024
Change = Callable[[SharedStore], Awaitable[object]]


@pytest.fixture
async def store(pair: list[SharedStore]) -> SharedStore:
    return pair[0]


def replacer_of(store: SharedStore) -> SharedStore:
    replacer = store
    assert replacer is not None
    return replacer


# A cursor that was reset is another one.


async def save(store: SharedStore) -> None:
    await store.save("x", StoredCassette(HEAD, (recording(0).interaction,)))


async def remove(store: SharedStore) -> None:
    await store.remove("x")


async def rename(store: SharedStore) -> None:
    await store.append("y", HEAD, recording(0))
    await replacer_of(store).replace_cassette("x", "y")


@pytest.mark.parametrize("reset", [save, remove, rename])
@pytest.mark.parametrize("steps", [1, 2])
async def test_a_step_from_a_state_that_was_reset_is_refused(
    pair: list[SharedStore], reset: Change, steps: int
) -> None:
    one, other = pair
    await append_recordings(one, 0)
    stale: CursorState | None = None
    for _ in range(steps):
        stale = await advanced(one, "x", 1, key(0), stale, b"of one", 0)
    await reset(other)
    now: CursorState | None = None
    for _ in range(steps):
        now = await advanced(other, "x", 1, key(0), now, b"of the other", 0)

    assert await advanced(one, "x", 1, key(0), stale, b"late", 0) is None
    moves = Moves(one)
    late = moves.begin(0, stale, b"late")
    await moves.settled(1)
    assert late.after is None
    assert await cursors_of(one, "x", 1, [key(0)]) == {key(0): now}


async def test_a_step_of_a_recording_is_no_state_of_an_earlier_cursor(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await one.append("x", HEAD, with_step(recording(0), 1))
    (stale,) = (await cursors_of(one, "x", 1, [key(0)])).values()
    await remove(other)
    await other.append("x", HEAD, with_step(recording(0), 1))

    assert await advanced(one, "x", 1, key(0), stale, b"late", 0) is None


async def test_the_cursors_of_a_name_are_reset_where_no_cassette_is_removed(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0, name="y")
    assert await advanced(one, "x", 1, key(0), None, b"1", 0)

    assert not await other.remove("x")

    assert await cursors_of(one, "x", 1, [key(0)]) == {}


# What counts as used.


async def test_a_step_without_a_cassette_uses_no_recording(store: SharedStore) -> None:
    assert await advanced(store, "x", 1, key(0), None, b"1", 0)
    await append_recordings(store, 0)

    assert await used(store, 1) == []


async def test_a_step_uses_no_recording_that_is_not_there_yet(store: SharedStore) -> None:
    await append_recordings(store, 0)
    assert await advanced(store, "x", 1, key(0), None, b"1", 1)
    await append_recordings(store, 1)

    assert await used(store, 1) == []


# Leases.


async def test_nothing_is_recorded_under_a_lease_that_was_given_back(store: SharedStore) -> None:
    lease = await store.claim("x", key(0))
    assert lease is not None
    await store.release_lease(lease)

    with pytest.raises(Fenced, match="cassette 'x'"):
        await store.append("x", HEAD, with_step(recording(0), 1, lease=lease))

    assert await store.names() == []
    assert await cursors_of(store, "x", 1, [key(0)]) == {}


async def test_only_one_recording_is_made_under_a_lease(store: SharedStore) -> None:
    lease = await store.claim("x", key(0))
    assert lease is not None
    await store.append("x", HEAD, with_step(recording(0), 1, lease=lease))

    with pytest.raises(Fenced, match="cassette 'x'"):
        await store.append("x", HEAD, with_step(other_answer(0, 1), 1, lease=lease))

    assert bodies(await store.load("x", writable=False)) == answers(0)
    assert await store.fences("x") == frozenset()


async def test_a_recording_goes_on_only_while_nobody_has_changed_what_is_stored(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    before = recording(0)
    more = replace(other_answer(0, 1, 0, body=b'{"more": 1}'), goes_on=before.interaction)
    await one.append("x", HEAD, before)
    await other.edit("x", 0, replace(before.exchange, metadata={"by": "hand"}))

    with pytest.raises(RecordingEdited, match="interaction 0 of cassette 'x'"):
        await one.append("x", HEAD, more)
    assert bodies(await one.load("x", writable=False)) == answers(0)

    await other.edit("x", 0, None)
    with pytest.raises(RecordingEdited, match="interaction 0 of cassette 'x'"):
        await one.append("x", HEAD, more)
    assert bodies(await one.load("x", writable=False)) == []

    await other.remove("x")
    with pytest.raises(RecordingEdited, match="interaction 0 of cassette 'x'"):
        await one.append("x", HEAD, more)
    assert await one.names() == []


async def test_a_recording_goes_on_in_the_place_of_what_is_stored(store: SharedStore) -> None:
    first, large_body = recording(0), await store.keep("x", [b"a" * 1024])
    held = replace(first.exchange.response, body=b"", file=large_body)
    first = replace(first, interaction=replace(first.exchange, response=held))
    await store.append("x", HEAD, first)
    await append_recordings(store, 1)

    more = other_answer(0, 2, 0, body=b'{"more": 1}')
    await store.append("x", HEAD, replace(more, goes_on=first.interaction))
    last = other_answer(0, 3, 2, body=b'{"more": 2}')
    await store.append("x", HEAD, replace(last, goes_on=more.interaction))

    assert bodies(await store.load("x", writable=False)) == [b'{"more": 2}', *answers(1)]


async def test_a_lease_is_of_use_to_the_instance_alone_that_claimed_it(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    lease = await one.claim("x", key(0))
    assert lease is not None

    with pytest.raises(Fenced, match="cassette 'x'"):
        await other.append("x", HEAD, with_step(recording(0), 1, lease=lease))
    await one.append("x", HEAD, with_step(recording(0), 1, lease=lease))


# The nearest recordings.


def on_one_path(index: int, size: int) -> Recording:
    made = recording(index, body=b"x" * size)
    request = replace(made.exchange.request, target="/v1/a")
    return replace(made, interaction=replace(made.exchange, request=request))


async def test_the_nearest_are_the_newest_by_index_wherever_they_stand(
    store: SharedStore,
) -> None:
    await append_recordings(store, 0, 1, 2, 3)
    # In the place of the first one, and the newest all the same.
    await store.append("x", HEAD, other_answer(0, 4, 0))

    assert found_indexes(await store.near("x", "GET", "/none", 2)) == [4, 3]


async def test_large_recordings_take_no_room_among_the_nearest(store: SharedStore) -> None:
    file = await kept(store, [b"y" * 3_000_000])
    await append_recordings(store, 0, 1)
    for index in (2, 3):
        await store.append("x", HEAD, large(index, file))

    assert found_indexes(await store.near("x", "POST", "/v1/0", 2)) == [0, 1]


async def test_a_recording_that_does_not_fit_keeps_no_smaller_one_out(store: SharedStore) -> None:
    for index, size in enumerate((10, 10, 2 * MIB, 7 * MIB)):
        await store.append("x", HEAD, on_one_path(index, size))

    assert found_indexes(await store.near("x", "POST", "/v1/a", 9)) == [0, 1, 3]


async def test_the_nearest_are_as_they_are_now_however_often_they_are_asked_for(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0, 1, 2)
    assert bodies_of(await one.near("x", "POST", "/v1/1", 9)) == answers(0, 1, 2)

    await other.edit("x", 1, other_answer(1, 1, body=b"edited").interaction)
    await other.edit("x", 2, None)
    await append_recordings(other, 3)

    found = await one.near("x", "POST", "/v1/1", 9)
    assert bodies_of(found) == [*answers(0), b"edited", *answers(3)]
    await other.save("x", StoredCassette(HEAD, (recording(4).interaction,)))
    assert bodies_of(await one.near("x", "POST", "/v1/1", 9)) == answers(4)


# The neighbours of a missed request.


def asked_for(number: int, *, target: str = "/v1/chat?a=1", text: str = "question") -> Recording:
    made = recording(number)
    body = dump({"model": "m-1", "messages": [{"role": "user", "content": f"{text} {number}"}]})
    request = replace(made.exchange.request, method="POST", target=target, body=body)
    return replace(made, interaction=replace(made.exchange, request=request))


async def neighbours_of(store: SharedStore, missed: Recording) -> list[int]:
    request = missed.exchange.request
    return found_indexes(await store.neighbours("x", sought(request, request.target)))


async def filled(store: SharedStore, *made: Recording) -> None:
    await store.extend("x", HEAD, [asked.exchange for asked in made])


def chosen(made: Sequence[Recording], missed: Recording) -> list[int]:
    """What a cassette in memory chooses."""
    items = {asked.exchange.index: asked.exchange for asked in made}
    request = missed.exchange.request
    found = Neighbours(items.values()).near(sought(request, request.target), items.get)
    return [item.index for item in found]


async def test_of_many_recordings_those_beside_a_missed_request_are_found(
    store: SharedStore,
) -> None:
    made = [asked_for(number, text=f"{number % 7} words, and the") for number in range(300)]
    await filled(store, *made)
    missed = [
        asked_for(number, text=f"{number % 7} words, and the", target="/v1/chat?a=2")
        for number in (3, 150)
    ]

    for asked in missed:
        found = await neighbours_of(store, asked)
        assert asked.exchange.index in found
        assert len(found) <= MOST_NEWEST + 4 * NEIGHBOURS
        assert found == chosen(made, asked)


async def test_recordings_of_another_path_are_neighbours_only_where_the_path_is_similar(
    store: SharedStore,
) -> None:
    targets = ("/v1/files/1", "/v1/files/2", "/v2/files/1", "/v1/models", "/v1/files/2?x=1")
    made = [asked_for(at, target=target) for at, target in enumerate(targets)]
    await filled(store, *made)

    assert await neighbours_of(store, asked_for(9, target="/v1/files/2")) == [1, 4]
    assert await neighbours_of(store, asked_for(9, target="/v1/files/9")) == [0, 1, 4]
    assert await neighbours_of(store, asked_for(9, target="/elsewhere")) == []


async def test_neighbours_are_as_they_are_now(pair: list[SharedStore]) -> None:
    one, other = pair
    made = [asked_for(number) for number in range(4)]
    await filled(one, *made)
    assert await neighbours_of(one, asked_for(9)) == [0, 1, 2, 3]

    await other.edit("x", 1, None)
    moved = asked_for(2, target="/v1/other")
    await other.edit("x", 2, moved.interaction)

    assert await neighbours_of(one, asked_for(9)) == [0, 3]
    assert await neighbours_of(one, asked_for(9, target="/v1/other")) == [2]


async def test_neighbours_have_no_large_bodies_and_together_eight_mebibytes_at_most(
    store: SharedStore,
) -> None:
    file = await kept(store, [b"y" * 3_000_000])
    for index, size in enumerate((10, 7 * MIB, 2 * MIB, 10)):
        await store.append("x", HEAD, on_one_path(index, size))
    await store.append("x", HEAD, large(4, file))
    missed = on_one_path(9, 1)

    assert await neighbours_of(store, missed) == [0, 2, 3]


# Heads and names.


async def test_the_head_of_no_cassette_is_not_replaced(store: SharedStore) -> None:
    await append_recordings(store, 0, name="y")

    await store.replace_head("x", HEAD)

    assert await store.names() == ["y"]
    assert await store.outline("x") is None


async def test_the_same_head_again_changes_nothing(store: SharedStore) -> None:
    await append_recordings(store, 0)
    before = await store.stat("x")

    await store.replace_head("x", HEAD)

    assert await store.stat("x") == before


async def test_a_cassette_that_is_renamed_to_its_own_name_stays(store: SharedStore) -> None:
    await append_recordings(store, 0, 1)

    await replacer_of(store).replace_cassette("x", "x")

    assert bodies(await store.load("x", writable=False)) == answers(0, 1)


# Recordings that differ in identifiers alone.


def alike_to(text: str) -> bytes:
    """The digest of turns with this text."""
    found = alike_key_of(RecordedRequest(turn(0, "call_1", text).exchange.request, NO_RULES))
    assert found is not None
    return found


async def test_the_newest_recordings_that_differ_in_identifiers_are_found(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    for index in range(MOST_ALIKE + 2):
        await one.append(
            "x", HEAD, turn(index, f"call_{index}", "in the sun", target=f"/v1/{index % 2}")
        )
    await one.append("x", HEAD, turn(100, "call_1", "in the snow"))

    assert found_indexes(await other.alike("x", alike_to("in the sun"))) == [
        *range(2, MOST_ALIKE + 2)
    ]
    assert found_indexes(await other.alike("x", alike_to("in the snow"))) == [100]
    assert await other.alike("x", alike_to("in the rain")) == []
    assert await other.alike("y", alike_to("in the sun")) == []
    await one.edit("x", 100, None)
    assert await other.alike("x", alike_to("in the snow")) == []


async def test_alike_recordings_are_returned_as_far_as_eight_mebibytes_hold(
    store: SharedStore,
) -> None:
    for index, size in enumerate((1, 5, 2, 6)):
        await store.append("x", HEAD, turn(index, f"call_{index}", "in the sun", "c" * size * MIB))

    assert found_indexes(await store.alike("x", alike_to("in the sun"))) == [0, 3]


async def test_the_first_recording_that_issued_an_identifier_is_known(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    first, second, sent = "call_h5Xw0Vb1jZ", "call_Qp7Lm2Kd9R", "call_Zz9Yy8Xx7W"
    await one.append("x", HEAD, with_step(turn(0, sent, "a", first, sent), 3))
    await one.append("x", HEAD, with_step(turn(1, first, "b", first, second), 4))
    keys = {name: issued_key(name) for name in (first, second, sent)}

    async def issuers() -> dict[str, Issuer]:
        found = await other.issuers("x", [*keys.values()])
        return {name: found[key] for name, key in keys.items() if key in found}

    assert await issuers() == {first: Issuer(0, 3), second: Issuer(1, 4)}
    await one.replace_head("x", replace(HEAD, meta=meta_with_rules({}, Rules(ignore=("body.a",)))))
    assert await issuers() == {first: Issuer(0, 3), second: Issuer(1, 4)}
    await one.edit("x", 1, turn(1, "call_1", "b", first).interaction)
    assert await issuers() == {first: Issuer(0, 3)}
    await one.edit("x", 0, None)
    assert (await issuers())[first].index == 1
    await one.remove("x")
    assert await issuers() == {}
    assert await other.issuers("none", [*keys.values()]) == {}
    assert await other.issuers("x", []) == {}
