"""What a store owes that several processes use at once."""

import asyncio
from dataclasses import replace

import pytest

from tapeway.body_files import body_pieces
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.matching import rules
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import SeenCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.errors import CassetteEdited, StoreError
from tapeway.ports import SharedStore
from tests.stores.large_bodies import kept, large
from tests.stores.recordings import HEAD, answers, bodies, exchanges, indexes, recording
from tests.stores.shared_instances import (
    advanced,
    append_recordings,
    cursors_of,
    extend_cassette,
    found_bodies,
    found_indexes,
    key,
    other_answer,
    recordings_under,
    seen_of,
    used,
    with_step,
)

FOREIGN = ForeignInteraction(9, {"index": 9, "kind": "tool", "request": {}, "response": 1})


@pytest.fixture
async def store(pair: list[SharedStore]) -> SharedStore:
    return pair[0]


async def test_a_store_shared_by_processes_says_so(store: SharedStore) -> None:
    assert store.shared is store


# Finding.


async def test_a_recording_is_found_under_its_key_by_every_instance(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0, 1, 2)

    found = await recordings_under(other, "x", [key(1)])
    assert [item.item for item in found] == [recording(1).interaction]
    assert found_indexes(await recordings_under(other, "x", [key(2), key(0), b"nothing"])) == [0, 2]
    assert await recordings_under(other, "x", []) == []
    assert await recordings_under(other, "y", [key(1)]) == []


async def test_equal_requests_are_found_in_order_with_their_takes(store: SharedStore) -> None:
    await store.append("x", HEAD, recording(0))
    await store.append("x", HEAD, with_step(other_answer(0, 4, body=b"second"), 7))
    await store.append("x", HEAD, recording(1))

    found = await recordings_under(store, "x", [key(0)])
    assert [(item.item.index, item.take) for item in found] == [(0, 0), (4, 7)]


async def test_a_recording_that_supersedes_takes_the_place_of_the_first(
    store: SharedStore,
) -> None:
    await append_recordings(store, 0, 1, 2, 3)
    await store.append("x", HEAD, other_answer(1, 4, 1, 3, body=b"new"))

    assert await store.documents("x", [1, 3]) == []
    assert found_bodies(await recordings_under(store, "x", [key(1)])) == [b"new"]
    assert found_indexes(await store.page("x", after=None, limit=10)) == [0, 4, 2]
    outline = await store.outline("x")
    assert outline is not None
    assert outline.count == 3


async def test_an_outline_says_what_there_is(pair: list[SharedStore]) -> None:
    one, other = pair
    assert await other.outline("x") is None
    await append_recordings(one, 0, 1)
    elsewhere = recording(2).exchange
    elsewhere = replace(
        elsewhere, request=replace(elsewhere.request, base="https://example.org/v2")
    )
    await one.append("x", HEAD, replace(recording(2), interaction=elsewhere))
    await extend_cassette(one, FOREIGN)

    outline = await other.outline("x")
    assert outline is not None
    assert outline.head == HEAD
    assert outline.count == 4
    assert outline.sources == {
        ("openai", "https://api.openai.com"),
        ("openai", "https://example.org/v2"),
    }
    await one.edit("x", 2, None)
    outline = await other.outline("x")
    assert outline is not None
    assert (outline.count, len(outline.sources)) == (3, 1)


async def test_pages_go_through_everything_in_order(store: SharedStore) -> None:
    await append_recordings(store, *range(7))
    await extend_cassette(store, FOREIGN)

    seen: list[int] = []
    after = None
    while page := await store.page("x", after=after, limit=3):
        assert len(page) <= 3
        seen += found_indexes(page)
        after = seen[-1]
    assert seen == list(range(8))
    assert await store.page("y", after=None, limit=3) == []


async def test_a_page_behind_what_is_gone_is_refused(store: SharedStore) -> None:
    """Whoever reads on from there would take what was read for all of it."""
    await append_recordings(store, 0, 1, 2)
    await store.edit("x", 1, None)

    with pytest.raises(CassetteEdited, match="again"):
        await store.page("x", after=1, limit=3)


async def test_the_newest_of_a_path_are_near_and_then_the_newest_of_others(
    store: SharedStore,
) -> None:
    for index, target in enumerate(["/v1/a?n=1", "/v1/a?n=2", "/v1/b", "/v1/a", "/v1/c"]):
        made = recording(index)
        request = replace(made.exchange.request, target=target)
        await store.append(
            "x", HEAD, replace(made, interaction=replace(made.exchange, request=request))
        )

    assert found_indexes(await store.near("x", "POST", "/v1/a", 2)) == [1, 3]
    assert found_indexes(await store.near("x", "POST", "/v1/a", 4)) == [0, 1, 3, 4]
    assert found_indexes(await store.near("x", "POST", "/v1/a", 9)) == [0, 1, 2, 3, 4]
    assert found_indexes(await store.near("x", "GET", "/v1/a", 2)) == [3, 4]
    assert found_indexes(await store.near("x", "POST", "/nowhere", 3)) == [2, 3, 4]
    assert await store.near("y", "POST", "/v1/a", 2) == []


async def test_what_is_near_holds_no_more_than_eight_mebibytes(store: SharedStore) -> None:
    for index in range(12):
        made = other_answer(0, index, body=b"%d" % index * 900_000)
        await store.append("x", HEAD, made)

    near = await store.near("x", "POST", "/v1/0", 100)
    assert 7 <= len(near) <= 9
    assert found_indexes(near)[-1] == 11
    assert sum([len(body) for body in found_bodies(near)]) <= 8 * 1024 * 1024


async def test_used_are_those_a_take_has_touched(pair: list[SharedStore]) -> None:
    one, other = pair
    await append_recordings(one, 0, 1, 2, 3)
    await extend_cassette(one, FOREIGN)
    assert await advanced(one, "x", 1, key(1), None, b"1", 1)
    assert await advanced(one, "x", 2, key(2), None, b"1", 2)
    assert await advanced(one, "x", 1, key(9), None, b"1", 99)

    assert await used(other, 1) == [1]
    assert await used(other, 3) == []
    assert await used(other, 1, 2, 7) == [1, 2]
    assert await used(other, 1, name="y") == []


async def test_recordings_are_named_without_their_documents(store: SharedStore) -> None:
    await append_recordings(store, 0, 1, 2)
    await store.append("x", HEAD, replace(recording(3), supersedes=(1,)))

    found = await store.titles("x", [2, 3, 1, 9])
    assert [(item.index, item.method, item.target) for item in found] == [
        (3, "POST", "/v1/3"),
        (2, "POST", "/v1/2"),
    ]
    assert await store.titles("x", []) == []
    assert await store.titles("y", [0]) == []


async def test_what_a_slot_used_counts_once(pair: list[SharedStore]) -> None:
    one, other = pair
    await append_recordings(one, 0, 1, 2)
    for store, take, number in ((one, 5, 0), (other, 3, 0), (one, 3, 1), (other, 5, 1)):
        assert await advanced(store, "x", take, key(number), None, b"1", number)

    for store in pair:
        assert await used(store, 3, 5) == [0, 1]
    # Another take began: what those used is as good as new.
    assert await used(other, 6) == []


async def test_what_was_removed_or_replaced_does_not_count_as_used(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0, 1, 2, 3)
    for number in range(3):
        assert await advanced(one, "x", 1, key(number), None, b"1", number)

    before = (await cursors_of(other, "x", 1, [key(0)]))[key(0)]
    assert await other.edit("x", 0, None)
    assert await other.edit("x", 1, FOREIGN)
    again = with_step(replace(recording(4), supersedes=(2,)), 1)
    await one.append("x", HEAD, again)
    # As if it had been found before it was removed.
    assert await advanced(other, "x", 1, key(0), before, b"2", 0)

    assert await used(one, 1) == [4]
    assert await other.edit("x", 4, replace(recording(4).exchange, index=4))
    assert await used(one, 1) == [4]


async def test_a_reserved_index_is_nobody_elses(pair: list[SharedStore]) -> None:
    await append_recordings(pair[0], 0)

    given = await asyncio.gather(*[pair[n % 2].reserve("x") for n in range(40)])
    assert len(set(given)) == 40
    assert 0 not in given
    await pair[1].append("x", HEAD, recording(max(given) + 1))
    assert await pair[0].reserve("x") > max(given) + 1


async def test_an_index_may_be_reserved_before_there_is_a_cassette(
    pair: list[SharedStore],
) -> None:
    first = await pair[0].reserve("x")
    second = await pair[1].reserve("x")

    assert first != second
    assert await pair[0].names() == []
    assert await pair[0].outline("x") is None
    await pair[0].append("x", HEAD, recording(second))
    assert found_indexes(await pair[1].page("x", after=None, limit=9)) == [second]


async def test_an_index_that_is_taken_is_not_given_to_two(store: SharedStore) -> None:
    await append_recordings(store, 0, 1)
    await store.append("x", HEAD, recording(0))

    assert len(await store.documents("x", [0])) == 1
    found = await store.load("x", writable=False)
    assert bodies(found) == answers(0, 1, 0)
    assert len(set(indexes(found))) == 3


async def test_items_are_taken_in_at_the_end_all_or_none(pair: list[SharedStore]) -> None:
    one, other = pair
    await append_recordings(one, 4)
    await extend_cassette(one, recording(0).interaction, FOREIGN, head=CassetteHead("", "other"))
    bad = recording(1).exchange
    head = replace(bad.response.head, status=101)
    bad = replace(bad, response=replace(bad.response, head=head))
    with pytest.raises(StoreError, match="status_code"):
        await extend_cassette(one, recording(2).interaction, bad)

    outline = await other.outline("x")
    assert outline is not None
    assert (outline.head, outline.count) == (HEAD, 3)
    assert found_indexes(await other.page("x", after=None, limit=9)) == [4, 5, 6]
    assert found_indexes(await recordings_under(other, "x", [key(0)])) == [5]


# Rules and edits.


async def test_another_rule_finds_everything_under_another_key(pair: list[SharedStore]) -> None:
    one, other = pair
    await append_recordings(one, 0, 1)
    wider = Rules(ignore=("query.n",), rewrite=(("/v1/0", "/v1/1"),))
    head = replace(HEAD, meta=rules.meta_with_rules(HEAD.meta, wider))

    await one.replace_head("x", head)

    shared = recording_key(recording(0).exchange, wider)
    assert found_indexes(await recordings_under(other, "x", [shared])) == [0, 1]
    assert await recordings_under(other, "x", [key(0)]) == []
    outline = await other.outline("x")
    assert outline is not None
    assert outline.head == head
    # And what comes from now on, whoever records it.
    await other.append("x", HEAD, other_answer(0, 2))
    assert found_indexes(await recordings_under(one, "x", [shared])) == [0, 1, 2]


async def test_rules_that_all_instances_state_at_once_come_into_force(
    pair: list[SharedStore],
) -> None:
    await append_recordings(pair[0], *range(30))
    wider = Rules(match=("x-kind",))
    head = replace(HEAD, meta=rules.meta_with_rules(HEAD.meta, wider))

    async with asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(pair[number % 2].replace_head("x", head))
            tasks.create_task(pair[number % 2].append("x", HEAD, recording(100 + number)))

    for number in (*range(30), *range(100, 106)):
        own = recording_key(recording(number).exchange, wider)
        assert found_indexes(await recordings_under(pair[1], "x", [own])) == [number]


async def test_an_edited_recording_is_found_under_what_it_says_now(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0, 1, 2)
    changed = replace(recording(7).exchange, index=1)

    assert await one.edit("x", 1, changed)
    assert not await one.edit("x", 5, changed)
    assert not await one.edit("y", 1, changed)
    assert await recordings_under(other, "x", [key(1)]) == []
    assert found_indexes(await recordings_under(other, "x", [key(7)])) == [1]
    assert found_indexes(await other.page("x", after=None, limit=9)) == [0, 1, 2]

    assert await one.edit("x", 1, None)
    assert not await one.edit("x", 1, None)
    assert await recordings_under(other, "x", [key(7)]) == []
    assert bodies(await other.load("x", writable=False)) == answers(0, 2)


async def test_every_change_changes_the_mark(pair: list[SharedStore]) -> None:
    one, other = pair
    seen = {""}

    async def changed() -> None:
        stat = await other.stat("x")
        assert stat is not None
        assert stat.version not in seen
        seen.add(stat.version)

    await append_recordings(one, 0)
    await changed()
    await append_recordings(one, 1)
    await changed()
    await one.edit("x", 1, replace(recording(8).exchange, index=1))
    await changed()
    await one.replace_head("x", replace(HEAD, run_id="another"))
    await changed()
    await one.edit("x", 1, None)
    await changed()
    await one.save("x", StoredCassette(HEAD, (recording(0).interaction,)))
    await changed()
    await one.remove("x")
    await append_recordings(one, 0)
    await changed()


async def test_a_cursor_is_moved_only_in_a_cassette_that_is_as_it_was_found(
    pair: list[SharedStore],
) -> None:
    one, other = pair

    async def moved(state: bytes) -> bool:
        seen = await seen_of(other)
        before = (await cursors_of(other, "x", 1, [key(0)])).get(key(0))
        another = seen._replace(token=f"{seen.token}0")
        assert await advanced(other, "x", 1, key(0), before, b"no", 0, another) is None
        now = await advanced(other, "x", 1, key(0), before, state, 0, seen)
        assert now == (await cursors_of(one, "x", 1, [key(0)])).get(key(0))
        all_seen.append(seen)
        return now is not None

    async def changed() -> bool:
        turns = await cursors_of(other, "x", 1, [key(0)])
        before, seen = turns.get(key(0)), all_seen[-1]
        assert await advanced(other, "x", 1, key(0), before, b"no", 0, seen) is None
        return await cursors_of(other, "x", 1, [key(0)]) == turns

    all_seen: list[SeenCassette] = []
    await append_recordings(one, 0)
    assert await moved(b"1")
    assert await moved(b"2")
    await append_recordings(one, 1)
    assert await changed()
    assert await moved(b"3")
    await one.edit("x", 1, None)
    assert await changed()
    assert await moved(b"4")
    await one.replace_head("x", replace(HEAD, run_id="another"))
    assert await changed()
    await one.remove("x")
    assert await changed()
    await append_recordings(one, 0)
    assert await changed()
    assert await moved(b"5")


async def test_large_bodies_are_there_for_every_instance(pair: list[SharedStore]) -> None:
    one, other = pair
    content = b"0123456789" * 300_000
    file = await kept(one, [content[:7], content[7:]])
    await one.append("x", HEAD, large(0, file))

    (found,) = await recordings_under(other, "x", [key(0)])
    (exchange,) = exchanges([found.item])
    assert exchange.response.file is not None
    assert (exchange.response.file.size, exchange.response.file.digest) == (file.size, file.digest)
    assert b"".join(body_pieces(exchange.response.file)) == content
    assert await other.near("x", "POST", "/v1/0", 9) == []
