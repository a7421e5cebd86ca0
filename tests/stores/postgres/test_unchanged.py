"""What a step compares: a recording under another key keeps none from being made."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.cassette import LogRow, StoredCassette
from tapeway.core.model.control import CursorMove, SeenCassette
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import (
    append_recordings,
    instances,
    key,
    made,
    other_answer,
    seen_of,
)

Change = Callable[[PostgresStore], Awaitable[object]]
KEYS, CLIENTS = 6, 3
TRIES = 30


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with instances(lambda: PostgresStore(postgres_url)) as stores:
        await append_recordings(stores[0], 0, 1)
        await append_recordings(stores[0], 0, name="another")
        yield [store for store in stores if isinstance(store, PostgresStore)]


async def _stays(store: PostgresStore, seen: SeenCassette) -> bool:
    return await made(store, CursorMove("x", 1, key(0), None, None, None, seen)) is not None


async def _moves(store: PostgresStore, seen: SeenCassette) -> bool:
    before = (await store.cursors("x", 1, [key(0)])).get(key(0))
    return await made(store, CursorMove("x", 1, key(0), before, b"1", 0, seen)) is not None


async def _of_another_key(store: PostgresStore) -> None:
    await append_recordings(store, 7)


async def _superseding_another_key(store: PostgresStore) -> None:
    await store.append("x", HEAD, other_answer(1, 8, 1))


async def _edit_of_another_key(store: PostgresStore) -> None:
    assert await store.edit("x", 1, None)


OTHERS = [_of_another_key, _superseding_another_key, _edit_of_another_key]


async def _of_the_key(store: PostgresStore) -> None:
    # Its number is lower than that of the recording before.
    await store.append("x", HEAD, other_answer(0, 3))


async def _superseding(store: PostgresStore) -> None:
    await store.append("x", HEAD, other_answer(0, 7, 0))


async def _removal(store: PostgresStore) -> None:
    assert await store.edit("x", 0, None)


async def _edited_answer(store: PostgresStore) -> None:
    assert await store.edit("x", 0, recording(0, body=b'{"edited": 1}').interaction)


async def _of_any_key(store: PostgresStore) -> None:
    # What has no route gets its key where it is read.
    made = recording(9)
    request = replace(made.exchange.request, route="")
    await store.append(
        "x", HEAD, replace(made, interaction=replace(made.exchange, request=request))
    )


async def _rules(store: PostgresStore) -> None:
    meta: dict[str, Json] = {**HEAD.meta, "match": {"ignore": ["body.none"]}}
    await store.replace_head("x", replace(HEAD, meta=meta))


async def _made_anew(store: PostgresStore) -> None:
    await store.save("x", StoredCassette(HEAD, (recording(0).interaction,)))


async def _gone(store: PostgresStore) -> None:
    assert await store.remove("x")


OWN = [_of_the_key, _of_any_key, _superseding, _removal, _edited_answer, _rules, _made_anew, _gone]


@pytest.mark.parametrize("step", [_stays, _moves])
@pytest.mark.parametrize("change", OTHERS)
async def test_a_change_under_another_key_refuses_no_step(
    pair: list[PostgresStore], change: Change, step: Callable[..., Awaitable[bool]]
) -> None:
    one, other = pair
    seen = await seen_of(other, 0)
    await change(one)

    assert not await step(other, seen._replace(keys=()))
    assert await step(other, seen)
    assert await step(other, seen)


@pytest.mark.parametrize("step", [_stays, _moves])
@pytest.mark.parametrize("change", OWN)
async def test_a_change_of_what_was_found_refuses_a_step(
    pair: list[PostgresStore], change: Change, step: Callable[..., Awaitable[bool]]
) -> None:
    one, other = pair
    seen = await seen_of(other, 0)
    await _of_another_key(one)
    assert await step(other, seen)
    await change(one)

    assert not await step(other, seen)


@pytest.mark.parametrize("step", [_stays, _moves])
async def test_a_recording_that_was_numbered_before_what_was_found_refuses_a_step(
    pair: list[PostgresStore], step: Callable[..., Awaitable[bool]]
) -> None:
    one, other = pair
    await one.append("x", HEAD, other_answer(0, 9))
    seen = await seen_of(other, 0)
    await one.append("x", HEAD, other_answer(0, 3))

    assert not await step(other, seen)


@pytest.mark.parametrize("step", [_stays, _moves])
@pytest.mark.parametrize("late", [1, 5])
async def test_a_recording_under_any_key_that_was_looked_up_refuses_a_step(
    pair: list[PostgresStore], late: int, step: Callable[..., Awaitable[bool]]
) -> None:
    one, other = pair
    seen = await seen_of(other, 0, 1, 5)
    await one.append("x", HEAD, other_answer(late, 9))

    assert not await step(other, seen)


@dataclass
class _Appending:
    """Instances that append under a few keys, and what was acknowledged under each."""

    stores: Sequence[PostgresStore]
    acknowledged: list[set[int]] = field(default_factory=lambda: [set() for _ in range(KEYS)])
    ended: bool = False

    async def client(self, store: PostgresStore, draw: random.Random) -> None:
        while not self.ended:
            number, at = await store.reserve("x"), draw.randrange(KEYS)
            # A number that was reserved early may be committed late.
            await asyncio.sleep(draw.choice((0, 0.03)))
            await store.append("x", HEAD, other_answer(at, number))
            self.acknowledged[at].add(number)


@pytest.mark.parametrize("stays", [True, False])
async def test_no_step_is_made_where_a_look_up_misses_an_acknowledged_recording(
    postgres_url: str, *, stays: bool
) -> None:
    async with instances(lambda: PostgresStore(postgres_url), 5) as opened:
        stores = [store for store in opened if isinstance(store, PostgresStore)]
        reader, appending, draw = stores[0], _Appending(stores[1:]), random.Random(7)
        await reader.append("x", HEAD, other_answer(0, await reader.reserve("x")))
        count, tries = Counter[bool](), itertools.count()
        rows, revision = list[LogRow](), 0
        async with asyncio.TaskGroup() as tasks:
            for store in stores[1:]:
                for _ in range(CLIENTS):
                    tasks.create_task(appending.client(store, random.Random(next(tries))))
            while min(count[True], count[False]) < TRIES:
                at = draw.randrange(KEYS)
                while (page := await reader.since("x", revision)) is not None:
                    rows += page.rows
                    revision = page.seen
                    if revision == page.revision:
                        break
                assert page is not None
                match_key = recording_key(recording(at).exchange, NO_RULES)
                seen = SeenCassette(page.token, revision, (match_key,))
                found = {row.number for row in rows if row.key == match_key}
                before = (await reader.cursors("x", 1, [key(at)])).get(key(at))
                await asyncio.sleep(draw.choice((0, 0.02)))
                acknowledged = set(appending.acknowledged[at])
                state = None if stays else b"1"
                step = CursorMove("x", 1, key(at), before, state, None, seen)
                was_made = await made(reader, step) is not None
                count[was_made] += 1
                assert not was_made or acknowledged <= found
            appending.ended = True
