"""Instances of one shared store, and what they record."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import NO_RULES, rules_of_meta
from tapeway.core.model.cassette import (
    CassetteHead,
    CursorStep,
    Lease,
    LogRow,
    Recording,
    TakenRecording,
)
from tapeway.core.model.control import Control, CursorMove, CursorState, SeenCassette
from tapeway.core.model.interaction import AnyInteraction, exchange_of
from tapeway.ports import CassetteStore, SharedStore
from tests.stores.recordings import HEAD, exchanges, recording

NewInstance = Callable[[], SharedStore]

WANTED = Control("auto", "default")


@asynccontextmanager
async def instances(new: NewInstance, count: int = 2) -> AsyncIterator[list[SharedStore]]:
    """`count` open instances of one store."""
    async with AsyncExitStack() as stack:
        opened: list[SharedStore] = []
        for _ in range(count):
            store = new()
            await store.open()
            stack.push_async_callback(store.close)
            opened.append(store)
        yield opened


def key(number: int) -> bytes:
    """The key of the recording with this number, without rules."""
    return recording_key(recording(number).exchange, NO_RULES)


def other_answer(number: int, index: int, *supersedes: int, body: bytes = b"") -> Recording:
    """A recording of another answer to the request of this number."""
    made = recording(number, *supersedes, body=body)
    return replace(made, interaction=replace(made.exchange, index=index))


def with_step(made: Recording, take: int, *, lease: Lease | None = None) -> Recording:
    """The recording with a step of the cursor of its key."""
    own = recording_key(made.exchange, NO_RULES)
    return replace(made, lease=lease, step=CursorStep(take, own, next_state))


def turn(index: int, name: str, text: str, *issued: str, target: str = "/v1/0") -> Recording:
    """A turn of a conversation: the result of the call `name`, and an answer that issues calls."""
    said: list[Json] = [
        {"role": "assistant", "tool_calls": [{"id": name}]},
        {"role": "tool", "tool_call_id": name, "content": text},
    ]
    body = dump({"tool_calls": [{"id": call_id} for call_id in issued]})
    made = recording(index, body=body)
    request = replace(made.exchange.request, target=target, body=dump({"messages": said}))
    return replace(made, interaction=replace(made.exchange, request=request))


def next_state(state: bytes | None) -> bytes:
    """The state after this one: a count."""
    return b"%d" % (int(state or b"0") + 1)


async def append_recordings(store: CassetteStore, *numbers: int, name: str = "x") -> None:
    """Append the recordings of these numbers, which are their indexes too."""
    for number in numbers:
        await store.append(name, HEAD, recording(number))


async def extend_cassette(
    store: CassetteStore, *items: AnyInteraction, head: CassetteHead = HEAD
) -> None:
    """Add interactions at the end of `x`, as an import does."""
    writer = store
    assert writer is not None
    await writer.extend("x", head, items)


async def recordings_under(
    store: SharedStore, name: str, keys: Sequence[bytes]
) -> Sequence[TakenRecording]:
    """The recordings under these match keys, in order."""
    numbers = dict[int, bytes | None]()
    for row in await log_of(store, name):
        numbers.pop(row.number, None)
        if row.live:
            numbers[row.number] = row.key
    outline = await store.outline(name)
    rules = NO_RULES if outline is None else rules_of_meta(outline.head.meta)
    found = []
    for taken in await store.documents(name, sorted(numbers)):
        exchange, match_key = exchange_of(taken.item), numbers[taken.item.index]
        if exchange is not None:
            own = recording_key(exchange, rules)
            assert match_key in (None, own)
            if own in keys:
                found.append(taken)
    return found


async def used(store: SharedStore, *takes: int, name: str = "x") -> list[int]:
    """The indexes of the recordings that some takes have used, in order."""
    return sorted(await store.used(name, takes))


async def log_of(store: SharedStore, name: str) -> list[LogRow]:
    """The log of a cassette, from its beginning."""
    rows, seen = list[LogRow](), 0
    while (page := await store.since(name, seen)) is not None:
        rows += page.rows
        seen = page.seen
        if seen == page.revision:
            break
    return rows


async def seen_of(store: SharedStore, *numbers: int, name: str = "x") -> SeenCassette:
    """A cassette as it is, for a decision on the requests of these numbers, or on all recordings."""
    page = await store.since(name, 0)
    assert page is not None
    keys = [recording_key(recording(number).exchange, NO_RULES) for number in numbers]
    return SeenCassette(page.token, page.revision, tuple(keys))


async def made(store: SharedStore, move: CursorMove) -> CursorState | None:
    """Where a step led; None where the store refused the step. Raises the store's error."""
    told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    store.advance(move, lambda _, refused: told.set_result(refused))
    if (refused := await told) is not None:
        raise refused
    return move.after


async def advanced(
    store: SharedStore,
    name: str,
    take: int,
    key: bytes,
    before: CursorState | None,
    state: bytes,
    touched: int | None,
    seen: SeenCassette | None = None,
) -> CursorState | None:
    """Where a step of a cursor led; None where the store refused the step."""
    return await made(store, CursorMove(name, take, key, before, state, touched, seen))


async def cursors_of(
    store: SharedStore, name: str, take: int, keys: Sequence[bytes]
) -> Mapping[bytes, CursorState]:
    """The cursors of these keys that were advanced in a take."""
    return await store.cursors(name, take, keys)


def found_indexes(found: Sequence[TakenRecording]) -> list[int]:
    return [item.item.index for item in found]


def found_bodies(found: Sequence[TakenRecording]) -> list[bytes]:
    return [exchange.response.body for exchange in exchanges(one.item for one in found)]
