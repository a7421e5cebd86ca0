"""Histories of messages over a store of cassettes: a session is a cassette, an append a recording.

The cassette of a session: its name tells the session's id, whatever that is made of.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.model.cassette import CassetteHead, LeakCheck, Recording, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.errors import CassetteCorrupt, RequestError, StoreError
from tapeway.integrations.history.message import Message, read, written
from tapeway.ports import CassetteStore

FOLDER = "history"

# Small letters alone: on some file systems `A.json` and `a.json` are the same file.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
_ESCAPED = "escaped"
_ESCAPE = re.compile(r"[^a-z0-9.-]")
_CODE = re.compile(r"_([0-9a-f]{2})")

# A segment begins with a letter of its own, so that the rest may begin with anything.
_MARK = "s"
_SEGMENT = 127
_MOST_SEGMENTS = 6
log = logging.getLogger(__name__)

# A session that is recorded into may hold a lock and an open file.
MOST_CLAIMED = 64


def name_of(session_id: str) -> str:
    """The cassette of a session. Raises RequestError for an id that is empty or too long."""
    if not session_id:
        raise RequestError("a session's id is a text that is not empty")
    if _PLAIN.fullmatch(session_id):
        return f"{FOLDER}/{session_id}"
    try:
        octets = session_id.encode().decode("latin-1")
    except UnicodeEncodeError as exc:
        raise RequestError(f"a session's id holds half a character: {session_id!r}") from exc
    escaped = _ESCAPE.sub(lambda found: f"_{ord(found[0]):02x}", octets)
    parts = [escaped[at : at + _SEGMENT] for at in range(0, len(escaped), _SEGMENT)]
    if len(parts) > _MOST_SEGMENTS:
        raise RequestError(
            f"a session's id of {len(session_id)} characters is too long: what is neither a small "
            f"letter, a digit, '.' nor '-' counts threefold for each of its octets, and "
            f"{_MOST_SEGMENTS * _SEGMENT} are the most"
        )
    return "/".join([FOLDER, _ESCAPED, *[_MARK + part for part in parts]])


def session_of(name: str) -> str | None:
    """The session whose cassette has this name, None for any other cassette."""
    folder, *segments = name.split("/")
    if folder != FOLDER or not segments:
        return None
    if len(segments) == 1:
        return segments[0] if _PLAIN.fullmatch(segments[0]) else None
    if segments[0] != _ESCAPED:
        return None
    escaped = "".join([segment.removeprefix(_MARK) for segment in segments[1:]])
    octets = _CODE.sub(lambda found: chr(int(found[1], 16)), escaped)
    try:
        session = octets.encode("latin-1").decode()
        return session if valid_cassette_name(name) and name_of(session) == name else None
    except (UnicodeError, RequestError):
        return None


class HistoryStorage(Protocol):
    """The messages of sessions. Every method may raise StoreError, and RequestError for an id."""

    async def get_history(self, session_id: str) -> list[Message]:
        """All messages of a session in the order they were appended; empty where there are none."""

    async def append_messages(self, session_id: str, messages: Sequence[Message]) -> None:
        """Add messages, all or none, durable on return; those of one call stay together."""

    async def clear_history(self, session_id: str) -> None:
        """Delete a session, if there is one."""

    async def list_sessions(self) -> list[str]:
        """The ids of all sessions, the one changed last first."""


class CassetteHistory:
    """Histories in an open store. Of several processes each may use its own over the same place.

    In a store for one process at a time a session that this one appends to is locked against others
    until it is closed or has not been used for long.
    """

    def __init__(
        self, store: CassetteStore, now: Callable[[], datetime], check: LeakCheck | None
    ) -> None:
        self._store = store
        self._now = now
        self._check = check
        # Where no other process hands out indexes: the next one of each session in use.
        self._claimed: OrderedDict[str, int] = OrderedDict()
        # Clocks of file systems stand still for milliseconds: what was changed after what.
        self._changes: dict[str, int] = {}
        self._numbers = count(1)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get_history(self, session_id: str) -> list[Message]:
        name = name_of(session_id)
        async with self._lock(name):
            stored = await self._store.load(name, writable=False)
            if name not in self._claimed:
                # What is only read is not watched over: another process may go on with it.
                await self._store.release(name)
        return [] if stored is None else self._messages(name, stored)

    async def append_messages(self, session_id: str, messages: Sequence[Message]) -> None:
        name = name_of(session_id)
        document = written(session_id, messages)
        if not messages:
            return
        head = CassetteHead(self._now().isoformat(), "", {"session_id": session_id})
        async with self._lock(name):
            index = await self._next_index(name)
            item = ForeignInteraction(index, {"index": index, **document})
            await self._store.append(name, head, Recording(item, check=self._check))
            self._changes[name] = next(self._numbers)
        await self._let_go_of_some()

    async def clear_history(self, session_id: str) -> None:
        name = name_of(session_id)
        async with self._lock(name):
            await self._store.remove(name)
            self._claimed.pop(name, None)
            self._changes.pop(name, None)

    async def list_sessions(self) -> list[str]:
        found: list[tuple[datetime, int, str]] = []
        for name in await self._store.names():
            session = session_of(name)
            stat = await self._store.stat(name) if session is not None else None
            if session is not None and stat is not None:
                changed = datetime.fromisoformat(stat.modified_at)
                found.append((changed, self._changes.get(name, 0), session))
        return [session for _, _, session in sorted(found, reverse=True)]

    async def rest(self) -> None:
        """Bring the sessions in use into their final form, the one changed last as the last."""
        failed: list[StoreError] = []
        for name in list(self._claimed):
            async with self._lock(name):
                if self._claimed.pop(name, None) is not None:
                    try:
                        await self._store.release(name)
                    except StoreError as exc:
                        failed.append(exc)
        if failed:
            raise failed[0]

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _next_index(self, name: str) -> int:
        if (shared := self._store.capabilities.shared) is not None:
            return await shared.reserve(name)
        if name not in self._claimed:
            stored = await self._store.load(name, writable=True)
            indexes = [each.index for each in stored.interactions] if stored is not None else []
            self._claimed[name] = max(indexes, default=-1) + 1
        index = self._claimed[name]
        self._claimed[name] = index + 1
        self._claimed.move_to_end(name)
        return index

    async def _let_go_of_some(self) -> None:
        while len(self._claimed) > MOST_CLAIMED:
            name = next((each for each in self._claimed if not self._lock(each).locked()), None)
            if name is None:
                return
            async with self._lock(name):
                del self._claimed[name]
                try:
                    await self._store.release(name)
                except StoreError as exc:
                    # What was acknowledged is durable all the same, and this is another session's.
                    log.error("session '%s' at rest: %s", session_of(name), exc.message)

    def _messages(self, name: str, stored: StoredCassette) -> list[Message]:
        found: list[Message] = []
        for item in stored.interactions:
            try:
                found += read(item)
            except ValueError as exc:
                raise CassetteCorrupt(
                    f"interaction {item.index} of cassette '{name}' in {self._store.url} is no part "
                    f"of a history: {exc}; take it out, or clear the session"
                ) from exc
        return found
