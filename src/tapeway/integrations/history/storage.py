"""Message histories in a store of cassettes: a session is a cassette, an append a recording.

The cassette's name contains the session's id, escaped if it is no plain name.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.model.cassette import CassetteHead, LeakCheck, Recording, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.errors import CassetteCorrupt, RequestError, StoreError
from tapeway.integrations.history.message import Message, interaction_document, messages_of
from tapeway.ports import CassetteStore

FOLDER = "history"

# Only lower case: on some file systems `A.json` and `a.json` are the same file.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
_ESCAPED = "escaped"
_ESCAPE = re.compile(r"[^a-z0-9.-]")
_CODE = re.compile(r"_([0-9a-f]{2})")

# Each segment begins with this letter: the rest may begin with any character.
_MARK = "s"
_SEGMENT = 127
_MAX_SEGMENTS = 6
log = logging.getLogger(__name__)

# A session that is recorded into may hold a lock and an open file.
MAX_CLAIMED = 64


def cassette_name(session_id: str) -> str:
    """The cassette of a session. Raises RequestError for an id that is empty or too long."""
    if not session_id:
        raise RequestError("a session's id is a text that is not empty")
    plain = f"{FOLDER}/{session_id}"
    if _PLAIN.fullmatch(session_id) and valid_cassette_name(plain):
        return plain
    try:
        octets = session_id.encode().decode("latin-1")
    except UnicodeEncodeError as exc:
        raise RequestError(f"a session's id holds half a character: {session_id!r}") from exc
    escaped = _ESCAPE.sub(lambda match: f"_{ord(match[0]):02x}", octets)
    parts = _parts(escaped)
    if any(part.endswith(".") for part in parts):
        # No segment of a cassette's name may end so.
        parts = _parts(escaped.replace(".", "_2e"))
    if len(parts) > _MAX_SEGMENTS:
        raise RequestError(
            f"a session's id of {len(session_id)} characters is too long: what is neither a small "
            f"letter, a digit, '.' nor '-' counts threefold for each of its octets, and "
            f"{_MAX_SEGMENTS * _SEGMENT} are the most"
        )
    return "/".join([FOLDER, _ESCAPED, *[_MARK + part for part in parts]])


def _parts(escaped: str) -> list[str]:
    return [escaped[at : at + _SEGMENT] for at in range(0, len(escaped), _SEGMENT)]


def session_id_of(name: str) -> str | None:
    """The session with a cassette of this name, None for other cassettes."""
    first, *parts = name.removeprefix(f"{FOLDER}/").split("/")
    escaped = "".join([part.removeprefix(_MARK) for part in parts]) if parts else first
    octets = _CODE.sub(lambda match: chr(int(match[1], 16)), escaped)
    try:
        session = octets.encode("latin-1").decode()
        return session if cassette_name(session) == name else None
    except (UnicodeError, RequestError):
        return None


class HistoryStorage(Protocol):
    """The messages of sessions. Every method may raise StoreError, or RequestError for a bad id."""

    async def get_history(self, session_id: str) -> list[Message]:
        """All messages of a session in the order they were appended; empty where there are none."""

    async def append_messages(self, session_id: str, messages: Sequence[Message]) -> None:
        """Add messages, all or none, durable on return; those of one call stay together."""

    async def clear_history(self, session_id: str) -> None:
        """Delete a session, if there is one."""

    async def list_sessions(self) -> list[str]:
        """The ids of all sessions, the one changed last first."""


class CassetteHistory:
    """Histories in an open store. Several processes may each open one over a shared place.

    In a store for one process at a time a session that this one appends to is locked against others
    until it is closed or has not been used for long.
    """

    def __init__(
        self, store: CassetteStore, now: Callable[[], datetime], check: LeakCheck | None
    ) -> None:
        self._store = store
        self._now = now
        self._check = check
        # The next indexes of each session in use, if no other process hands out indexes.
        self._claimed: OrderedDict[str, Iterator[int]] = OrderedDict()
        # In which order sessions changed: file system clocks stand still for milliseconds.
        self._changes: dict[str, int] = {}
        self._numbers = count(1)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get_history(self, session_id: str) -> list[Message]:
        name = cassette_name(session_id)
        async with self._lock(name):
            stored = await self._store.load(name, writable=False)
            if name not in self._claimed:
                # Only read, it is not kept: another process may go on with it.
                await self._store.release(name)
        return [] if stored is None else self._messages(name, stored)

    async def append_messages(self, session_id: str, messages: Sequence[Message]) -> None:
        name = cassette_name(session_id)
        document = interaction_document(session_id, messages)
        if not messages:
            return
        head = CassetteHead(self._now().isoformat(), "", {"session_id": session_id})
        async with self._lock(name):
            index = await self._next_index(name)
            item = ForeignInteraction(index, {"index": index, **document})
            await self._store.append(name, head, Recording(item, check=self._check))
            self._changes[name] = next(self._numbers)
        await self._release_unused()

    async def clear_history(self, session_id: str) -> None:
        name = cassette_name(session_id)
        async with self._lock(name):
            await self._store.remove(name)
            self._claimed.pop(name, None)
            self._changes.pop(name, None)

    async def list_sessions(self) -> list[str]:
        sessions: list[tuple[datetime, int, str]] = []
        for name in await self._store.names():
            session = session_id_of(name)
            stat = await self._store.stat(name) if session is not None else None
            if session is not None and stat is not None:
                changed = datetime.fromisoformat(stat.modified_at)
                sessions.append((changed, self._changes.get(name, 0), session))
        return [session for _, _, session in sorted(sessions, reverse=True)]

    async def release_all(self) -> None:
        """Write the final form of the sessions in use, the one changed last at the end."""
        failed: list[StoreError] = []
        while self._claimed:
            try:
                await self._release_oldest()
            except StoreError as exc:
                failed.append(exc)
        if failed:
            raise failed[0]

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _next_index(self, name: str) -> int:
        if (shared := self._store.shared) is not None:
            return await shared.reserve(name)
        if name not in self._claimed:
            stored = await self._store.load(name, writable=True)
            indexes = [] if stored is None else [item.index for item in stored.interactions]
            self._claimed[name] = count(max(indexes, default=-1) + 1)
        self._claimed.move_to_end(name)
        return next(self._claimed[name])

    async def _release_unused(self) -> None:
        while len(self._claimed) > MAX_CLAIMED:
            try:
                await self._release_oldest()
            except StoreError as exc:
                # What was acknowledged is durable, and the caller used another session.
                log.error("a session at rest: %s", exc.message)

    async def _release_oldest(self) -> None:
        name = next(iter(self._claimed))
        async with self._lock(name):
            if self._claimed.pop(name, None) is not None:
                await self._store.release(name)

    def _messages(self, name: str, stored: StoredCassette) -> list[Message]:
        messages: list[Message] = []
        for item in stored.interactions:
            try:
                messages += messages_of(item)
            except ValueError as exc:
                raise CassetteCorrupt(
                    f"interaction {item.index} of cassette '{name}' in {self._store.url} is no part "
                    f"of a history: {exc}; take it out, or clear the session"
                ) from exc
        return messages
