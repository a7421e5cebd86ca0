"""Instances of one shared store, and what they record."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from tapeway.core.cassette.index import index_keys
from tapeway.core.model.cassette import CassetteHead, CursorStep, Lease, Recording, TakenRecording
from tapeway.core.model.control import Control
from tapeway.core.model.interaction import AnyInteraction
from tapeway.ports import CassetteStore, SharedStore
from tests.stores.recordings import HEAD, exchanges, recording

NewInstance = Callable[[], SharedStore]

WANTED = Control("auto", "default")


@asynccontextmanager
async def instances(new: NewInstance, count: int = 2) -> AsyncIterator[list[SharedStore]]:
    """So many instances of one store, opened."""
    async with AsyncExitStack() as stack:
        opened: list[SharedStore] = []
        for _ in range(count):
            store = new()
            await store.open()
            stack.push_async_callback(store.close)
            opened.append(store)
        yield opened


def key(number: int) -> bytes:
    """What the recording of this number is found under without rules."""
    return index_keys(recording(number).exchange)[0]


def again(number: int, index: int, *supersedes: int, body: bytes = b"") -> Recording:
    """Another answer to the request of a recording."""
    made = recording(number, *supersedes, body=body)
    return replace(made, interaction=replace(made.exchange, index=index))


def stepped(made: Recording, take: int, *, lease: Lease | None = None) -> Recording:
    """A recording that moves on where its key stands."""
    own = index_keys(made.exchange)[0]
    return replace(made, lease=lease, step=CursorStep(take, own, moved))


def moved(state: bytes | None) -> bytes:
    """One turn further."""
    return b"%d" % (int(state or b"0") + 1)


async def take_in(store: CassetteStore, *numbers: int, name: str = "x") -> None:
    """Recordings of these numbers, under these indexes."""
    for number in numbers:
        await store.append(name, HEAD, recording(number))


async def bring_in(store: CassetteStore, *items: AnyInteraction, head: CassetteHead = HEAD) -> None:
    """Interactions that others made, at the end of `x`."""
    writer = store.capabilities.batch_writer
    assert writer is not None
    await writer.extend("x", head, items)


def found_indexes(found: Sequence[TakenRecording]) -> list[int]:
    return [each.item.index for each in found]


def found_bodies(found: Sequence[TakenRecording]) -> list[bytes]:
    return [each.response.body for each in exchanges(one.item for one in found)]
