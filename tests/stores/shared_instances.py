"""Instances of one shared store, and what they record."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from tapeway.core.cassette.recording_keys import index_keys
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.cassette import CassetteHead, CursorStep, Lease, Recording, TakenRecording
from tapeway.core.model.control import Control, CursorMove, CursorState
from tapeway.core.model.interaction import AnyInteraction
from tapeway.engine.cassettes.remembered import advanced as made
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
    return index_keys(recording(number).exchange, NO_RULES)[0]


def other_answer(number: int, index: int, *supersedes: int, body: bytes = b"") -> Recording:
    """A recording of another answer to the request of this number."""
    made = recording(number, *supersedes, body=body)
    return replace(made, interaction=replace(made.exchange, index=index))


def with_step(made: Recording, take: int, *, lease: Lease | None = None) -> Recording:
    """The recording with a step of the cursor of its key."""
    own = index_keys(made.exchange, NO_RULES)[0]
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
    store: SharedStore, name: str, digests: Sequence[bytes]
) -> Sequence[TakenRecording]:
    """The recordings under these digests, in order."""
    return [*(await store.look(name, 0, (), digests)).recordings]


async def advanced(
    store: SharedStore,
    name: str,
    take: int,
    key: bytes,
    before: CursorState | None,
    state: bytes,
    touched: int | None,
    version: str | None = None,
) -> CursorState | None:
    """Where a step of a cursor led; None where the store refused the step."""
    return await made(store, CursorMove(name, take, key, before, state, touched, version))


async def cursors_of(
    store: SharedStore, name: str, take: int, keys: Sequence[bytes]
) -> Mapping[bytes, CursorState]:
    """The cursors of these keys that were advanced in a take."""
    return (await store.look(name, take, keys, ())).turns


def found_indexes(found: Sequence[TakenRecording]) -> list[int]:
    return [item.item.index for item in found]


def found_bodies(found: Sequence[TakenRecording]) -> list[bytes]:
    return [exchange.response.body for exchange in exchanges(one.item for one in found)]
