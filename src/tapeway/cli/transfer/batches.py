"""What every way of bringing a cassette into a store does: batches, large bodies, digests.

What a cassette holds as one short text: the same for the same recordings in every store and format.

The mark of a cassette that holds the beginning of another one, until it holds all of it.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from tapeway.body_files import pieces
from tapeway.cli.places import CassettePlace
from tapeway.cli.terminal import progress
from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.native.document import decode, encode
from tapeway.paging import CassetteWalk, weight
from tapeway.ports import CassetteStore
from tapeway.stores.shared.serialize import document_of

_MARK = 8
_KEY = "unfinished_conversion"
_MOST_ITEMS = 500
_MOST_BYTES = 4 * 1024 * 1024


class Digest:
    """Taken as the interactions go by, in order; remembers eight bytes of each."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._marks = bytearray()

    @property
    def count(self) -> int:
        """How many interactions went by."""
        return len(self._marks) // _MARK

    @property
    def text(self) -> str:
        """The digest of those, in hex."""
        return self._whole.hexdigest()

    def add(self, item: AnyInteraction) -> None:
        found = digest_of(item)
        self._whole.update(found.encode())
        self._marks += bytes.fromhex(found[: 2 * _MARK])

    def same(self, other: "Digest") -> bool:
        """Whether the same interactions went by."""
        return (self.count, self.text) == (other.count, other.text)

    def parting(self, other: "Digest") -> int:
        """The position of the first interaction in which the two differ."""
        most = min(self.count, other.count)
        for at in range(most):
            piece = slice(at * _MARK, (at + 1) * _MARK)
            if self._marks[piece] != other._marks[piece]:
                return at
        return most


def digest_of(item: AnyInteraction) -> str:
    """The digest of one interaction, wherever it stands. Raises StoreError for one that is none."""
    # What a recording says of itself settles once it is read and written.
    document = encode(decode(document_of(item), 0))
    document.pop("index", None)
    return hashlib.sha256(dump({"index": 0, **document})).hexdigest()


def marked(head: CassetteHead, by: str | None = None) -> CassetteHead:
    """The head of a cassette on its way; `by` tells the conversions into one cassette apart."""
    return replace(head, meta={**head.meta, _KEY: by or True})


def is_marked(head: CassetteHead) -> bool:
    """Whether a conversion into this cassette was begun and not brought to its end."""
    return _KEY in head.meta


def unmarked(head: CassetteHead) -> CassetteHead:
    """The head it will have in the end."""
    return replace(head, meta={name: value for name, value in head.meta.items() if name != _KEY})


@dataclass(frozen=True, slots=True)
class TransferSource:
    """What is to be brought, and where it is; `anew` goes through it from its beginning.

    `place` is there where it is a cassette in a store.
    """

    shown: str
    anew: Callable[[], Awaitable[CassetteWalk]]
    place: CassettePlace | None = None

    async def walk(self) -> CassetteWalk:
        """The same. Raises ConfigError for what is itself the beginning of a cassette."""
        found = await self.anew()
        if is_marked(found.head):
            raise ConfigError(
                f"{self.shown} is the beginning of a cassette: finish its conversion first"
            )
        return found


def agree(wanted: Digest, found: Digest, shown: str) -> None:
    """Raise StoreError where what was read again is not what was wanted."""
    if not found.same(wanted):
        raise StoreError(
            f"{shown}: interactions[{wanted.parting(found)}] does not come back as it was written; "
            "nothing can be relied on there, and the source is as it was"
        )


async def verified(wanted: Digest, to: CassettePlace) -> Digest:
    """The digest of what is read there again. Raises StoreError where it is another one."""
    again, found = await to.walk(), Digest()
    with progress("checking", again.count) as step:
        async for item in again.items:
            found.add(item)
            step(1)
    agree(wanted, found, to.shown)
    return found


async def beginning(wanted: CassetteWalk, present: CassetteWalk) -> Digest | None:
    """The digest of what is there where that is how the wanted one begins, which stands behind it."""
    if unmarked(present.head) != wanted.head:
        return None
    done = Digest()
    with progress("comparing", present.count) as step:
        async for held in present.items:
            item = await anext(wanted.items, None)
            if item is None or digest_of(item) != digest_of(held):
                return None
            done.add(item)
            step(1)
    return done


async def ended(wanted: CassetteWalk) -> bool:
    """Whether nothing stands behind what went by."""
    return await anext(wanted.items, None) is None


async def batches(
    items: AsyncIterator[AnyInteraction], to: CassettePlace, done: Digest
) -> AsyncIterator[list[AnyInteraction]]:
    """What is still to come, some at a time, numbered on; their large bodies are there already."""
    batch: list[AnyInteraction] = []
    heavy = 0
    async for item in items:
        batch.append(item)
        heavy += weight(item)
        if len(batch) == _MOST_ITEMS or heavy >= _MOST_BYTES:
            yield await _taken_in(batch, to, done)
            batch, heavy = [], 0
    if batch:
        yield await _taken_in(batch, to, done)


async def add(
    store: CassetteStore, name: str, head: CassetteHead, items: Sequence[AnyInteraction]
) -> None:
    """Interactions at the end of a cassette, durable on return. Raises StoreError."""
    if (writer := store.capabilities.batch_writer) is not None:
        await writer.extend(name, head, items)
        return
    # Together, so that a store may make them durable together.
    await asyncio.gather(*[store.append(name, head, Recording(each)) for each in items])


async def _taken_in(
    batch: Sequence[AnyInteraction], to: CassettePlace, done: Digest
) -> list[AnyInteraction]:
    start = done.count
    for item in batch:
        done.add(item)
    return [replace(await _kept(to, each), index=start + at) for at, each in enumerate(batch)]


async def _kept(to: CassettePlace, item: AnyInteraction) -> AnyInteraction:
    if not isinstance(item, Interaction):
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = replace(request, file=await _copied(to, request.file))
    if response.file is not None:
        response = replace(response, file=await _copied(to, response.file))
    return replace(item, request=request, response=response)


async def _copied(to: CassettePlace, file: BodyFile) -> BodyFile:
    if (keeper := to.store.capabilities.bodies) is None:
        raise StoreError(f"{to.store.url} takes no large bodies, and this cassette has some")
    kept = await keeper.keep(to.name, pieces(file))
    if kept.digest != file.digest:
        raise StoreError(f"{file.path} was changed since it was recorded: restore it")
    return replace(kept, parts=file.parts)
