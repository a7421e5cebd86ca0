"""Cassettes in the memory of the process: the smallest store there is.

It shows all that a store has to do: keep what is appended, put a recording in the place of those it
supersedes, number by position on `save` and `release`, and never return its own live objects.
"""

import asyncio
import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count

from tapeway.core.http.routing import check_cassette_name
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import closed
from tapeway.formats.cassette_file import JSON
from tapeway.formats.native import document
from tapeway.ports import Capabilities
from tapeway.stores.file.journal import payload_of
from tapeway.stores.shared.large_bodies import write_temporary
from tapeway.stores.shared.recording_order import RecordingOrder
from tapeway.stores.shared.serialize import document_of, serialize_cassette


@dataclass(slots=True)
class _Kept:
    """A cassette: its recordings in order, when it was changed, and which change that was."""

    head: CassetteHead
    items: RecordingOrder[AnyInteraction]
    at: datetime
    change: int


class MemoryStore:
    """A store whose cassettes end with the process."""

    url = "memory:"
    durability = "process"
    scratch = None

    def __init__(self) -> None:
        self.capabilities = Capabilities(bodies=self)
        self._cassettes: dict[str, _Kept] = {}
        self._changes = count(1)
        self._closed = False

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        found = self._found(name)
        return None if found is None else copy.deepcopy(_stored(found))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        found = self._found(name)
        payload_of(recording)
        interaction = copy.deepcopy(recording.interaction)
        items = RecordingOrder[AnyInteraction]() if found is None else found.items
        items.add(interaction.index, interaction, recording.supersedes)
        self._keep(name, copy.deepcopy(head) if found is None else found.head, items)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """Stored in a temporary file, which is deleted when no recording refers to it any more."""
        self._found(name)
        file, _ = await asyncio.to_thread(write_temporary, pieces)
        return file

    async def save(self, name: str, cassette: StoredCassette) -> None:
        self._found(name)
        serialize_cassette(
            JSON, cassette.head, [document_of(each) for each in cassette.interactions]
        )
        cassette = copy.deepcopy(cassette)
        self._keep(name, cassette.head, _numbered(cassette.interactions))

    async def release(self, name: str) -> None:
        if (found := self._found(name)) is not None:
            found.items = _numbered(_stored(found).interactions)

    async def remove(self, name: str) -> bool:
        self._found(name)
        return self._cassettes.pop(name, None) is not None

    async def names(self) -> list[str]:
        self._refuse_when_closed()
        return sorted(self._cassettes)

    async def stat(self, name: str) -> CassetteStat | None:
        if (found := self._found(name)) is None:
            return None
        size = len(document.save(_stored(found)))
        return CassetteStat(size, found.at.isoformat(timespec="microseconds"), str(found.change))

    def _found(self, name: str) -> _Kept | None:
        self._refuse_when_closed()
        return self._cassettes.get(check_cassette_name(name))

    def _keep(self, name: str, head: CassetteHead, items: RecordingOrder[AnyInteraction]) -> None:
        self._cassettes[name] = _Kept(head, items, datetime.now(UTC), next(self._changes))

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise closed(self.url)


def _stored(found: _Kept) -> StoredCassette:
    return StoredCassette(found.head, tuple(item for _, item in found.items.items()))


def _numbered(items: Iterable[AnyInteraction]) -> RecordingOrder[AnyInteraction]:
    return RecordingOrder(enumerate(replace(each, index=i) for i, each in enumerate(items)))
