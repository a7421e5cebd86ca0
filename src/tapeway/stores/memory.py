"""Cassettes that live and die with the process: the smallest store there is.

It shows all a store has to do: keep what is appended, put a recording where the ones it supersedes
were, number by position on `save` and `release`, and never hand out its own live objects.
"""

import asyncio
import copy
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from tapeway.core.model import (
    BodyFile,
    CassetteHead,
    CassetteStat,
    ForeignInteraction,
    Interaction,
    Recording,
    StoredCassette,
)
from tapeway.core.routing import check_cassette_name
from tapeway.formats import native
from tapeway.spool import Temporary
from tapeway.stores.document import payload_of
from tapeway.stores.placement import Placement

Kept = Placement[Interaction | ForeignInteraction]


class MemoryStore:
    """A store that forgets everything at the end of the process."""

    url = "memory:"
    durability = "process"
    scratch = None

    def __init__(self) -> None:
        self._cassettes: dict[str, tuple[CassetteHead, Kept, datetime]] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        return copy.deepcopy(self._read(name))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        check_cassette_name(name)
        payload_of(recording)
        empty: Kept = Placement()
        head, kept, _ = self._cassettes.get(name, (copy.deepcopy(head), empty, None))
        interaction = copy.deepcopy(recording.interaction)
        kept.add(interaction.index, interaction, recording.supersedes)
        self._cassettes[name] = (head, kept, datetime.now(UTC))

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """In a temporary file that goes when no recording refers to it any more."""
        check_cassette_name(name)
        return await asyncio.to_thread(_kept, pieces)

    async def save(self, name: str, cassette: StoredCassette) -> None:
        self._keep(name, cassette, datetime.now(UTC))

    async def release(self, name: str) -> None:
        if (cassette := self._read(name)) is not None:
            self._keep(name, cassette, self._cassettes[name][2])

    async def remove(self, name: str) -> bool:
        return self._cassettes.pop(check_cassette_name(name), None) is not None

    async def names(self) -> list[str]:
        return sorted(self._cassettes)

    async def stat(self, name: str) -> CassetteStat | None:
        if (cassette := self._read(name)) is None:
            return None
        modified_at = self._cassettes[name][2].isoformat(timespec="seconds")
        return CassetteStat(len(native.save(cassette)), modified_at)

    def _keep(self, name: str, cassette: StoredCassette, at: datetime) -> None:
        check_cassette_name(name)
        cassette = copy.deepcopy(cassette)
        kept = enumerate(replace(each, index=i) for i, each in enumerate(cassette.interactions))
        self._cassettes[name] = (cassette.head, Placement(kept), at)

    def _read(self, name: str) -> StoredCassette | None:
        if check_cassette_name(name) not in self._cassettes:
            return None
        head, kept, _ = self._cassettes[name]
        return StoredCassette(head, tuple(item for _, item in kept.items()))


def _kept(pieces: Iterable[bytes]) -> BodyFile:
    file, size, digest = Temporary(None), 0, hashlib.sha256()
    for piece in pieces:
        file.write(piece)
        digest.update(piece)
        size += len(piece)
    return BodyFile("", size, digest.hexdigest(), hold=file)
