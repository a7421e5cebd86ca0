"""Cassettes in the memory of the process: the smallest store there is.

MemoryStore shows all duties of a store: keep appended recordings, put a recording in the place of
the superseded recordings, number by position on `save` and `release`, and never return live
objects.
"""

import asyncio
import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count

from tapeway.cooperative import free_later
from tapeway.core.http.routing import check_cassette_name
from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import closed
from tapeway.formats.cassette_file import JSON
from tapeway.paging import bytes_in_memory
from tapeway.ports import StoreFacts
from tapeway.stores.file.journal import payload_of
from tapeway.stores.support.large_bodies import write_temporary
from tapeway.stores.support.recording_order import RecordingOrder
from tapeway.stores.support.serialize import checked_documents
from tapeway.stores.whole import WholeCassettes

_AT_ONCE = 256 * 1024
"""Larger recordings are looked through in a thread."""

_Sized = tuple[AnyInteraction, int]


@dataclass(slots=True)
class _Kept:
    """A cassette: recordings in order, size as text, time and number of the last change."""

    head: CassetteHead
    items: RecordingOrder[_Sized]
    size: int
    at: datetime
    change: int


class MemoryStore(WholeCassettes):
    """A store whose cassettes end with the process."""

    url = "memory:"
    facts = StoreFacts(durability="process")

    def __init__(self) -> None:
        self._cassettes: dict[str, _Kept] = {}
        self._changes = count(1)
        self._closed = False
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        self._closed = False

    async def close(self, within_s: float = math.inf) -> None:
        self._closed = True

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        stored = self._kept(name)
        # A large cassette is copied in a thread: on the event loop all clients would wait for it.
        return None if stored is None else await asyncio.to_thread(_copied, _stored(stored))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        self._kept(name)
        # Under the lock, so that the order of the calls is kept.
        async with self._changing:
            item = recording.interaction
            if isinstance(item, Interaction) and bytes_in_memory(item) > _AT_ONCE:
                added = await asyncio.to_thread(_size_of, recording)
            else:
                added = _size_of(recording)
            interaction = copy.deepcopy(recording.interaction)
            self._append(name, head, recording, interaction, added)

    def _append(
        self,
        name: str,
        head: CassetteHead,
        recording: Recording,
        interaction: AnyInteraction,
        added: int,
    ) -> None:
        held = self._kept(name)
        items = RecordingOrder[_Sized]() if held is None else held.items
        superseded_items = [items.get(superseded) for superseded in set(recording.supersedes)]
        size = (
            0
            if held is None
            else held.size - sum([sized[1] for sized in superseded_items if sized])
        )
        items.add(interaction.index, (interaction, added), recording.supersedes)
        kept = copy.deepcopy(head) if held is None else held.head
        self._keep(name, kept, items, size + added)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """Stored in a temporary file, which is deleted when no recording refers to it any more."""
        self._kept(name)
        file, _ = await asyncio.to_thread(write_temporary, pieces)
        return file

    async def put(self, name: str, cassette: StoredCassette) -> None:
        self._kept(name)
        async with self._changing:
            head, items, size = await asyncio.to_thread(_prepared, cassette)
            before = self._kept(name)
            self._keep(name, head, items, size)
        if before is not None:
            free_later([sized for _, sized in before.items.items()])

    async def release(self, name: str) -> None:
        async with self._changing:
            if (held := self._kept(name)) is not None:
                items = [sized for _, sized in held.items.items()]
                held.items = await asyncio.to_thread(_numbered, items)

    async def delete(self, name: str) -> bool:
        if (held := self._kept(name)) is None:
            return False
        del self._cassettes[name]
        free_later([sized for _, sized in held.items.items()])
        return True

    async def names(self) -> list[str]:
        self._refuse_when_closed()
        return sorted(self._cassettes)

    async def stat(self, name: str) -> CassetteStat | None:
        if (held := self._kept(name)) is None:
            return None
        # It is asked for every second: nothing is serialised for it.
        return CassetteStat(held.size, held.at.isoformat(timespec="microseconds"), str(held.change))

    def _kept(self, name: str) -> _Kept | None:
        self._refuse_when_closed()
        return self._cassettes.get(check_cassette_name(name))

    def _keep(
        self, name: str, head: CassetteHead, items: RecordingOrder[_Sized], size: int
    ) -> None:
        self._cassettes[name] = _Kept(head, items, size, datetime.now(UTC), next(self._changes))

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise closed(self.url)


def _size_of(recording: Recording) -> int:
    return len(payload_of(recording))


def _stored(kept: _Kept) -> StoredCassette:
    return StoredCassette(kept.head, tuple(item for _, (item, _) in kept.items.items()))


def _prepared(cassette: StoredCassette) -> tuple[CassetteHead, RecordingOrder[_Sized], int]:
    """The kept form of a cassette, after a check that it can be written."""
    sizes = [len(dump(checked_document)) for checked_document in checked_documents(JSON, cassette)]
    cassette = _copied(cassette)
    return cassette.head, _numbered(zip(cassette.interactions, sizes, strict=True)), sum(sizes)


def _copied(cassette: StoredCassette) -> StoredCassette:
    # One by one: the notes of a copy of all would be freed at once, and other clients would wait.
    items = tuple([copy.deepcopy(interaction) for interaction in cassette.interactions])
    return StoredCassette(copy.deepcopy(cassette.head), items)


def _numbered(items: Iterable[_Sized]) -> RecordingOrder[_Sized]:
    return RecordingOrder(
        enumerate((replace(item, index=i), size) for i, (item, size) in enumerate(items))
    )
