"""Connections to the server, and the transactions on them.

No transaction waits for another one's connection, so that a pool of one is enough for everything.
In statements, `@name` is a table of the store's schema.

What is used of the driver, and what its errors become.

Texts of a server's errors may repeat what was sent to it, so only those of kinds that cannot are
passed on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]

from tapeway.errors import StoreAway, StoreError, TapewayError, closed
from tapeway.stores.postgres import errors
from tapeway.stores.postgres.address import PostgresAddress
from tapeway.stores.postgres.errors import FAULTS, translated

CONNECT_S = 3.0
COMMAND_S = 5.0

LONG_S = 600.0
"""For what goes through a whole cassette."""
T = TypeVar("T")

PATIENCE_S = 8.0
"""How long a recording goes on trying: its answer has been paid for."""
_TRIES = 4
_PAUSE_S = 0.1

_AWAY_S = 0.25
"""After a connection failed, for so long nobody tries another one."""
_IDLE_S = 5
_LONG_IDLE_S = 30

# One round trip. Who is stopped in a transaction must not hold its rows against all others.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
    "SET LOCAL statement_timeout = '{limit}'; "
    "SET LOCAL idle_in_transaction_session_timeout = '{idle}'; "
    "SET LOCAL synchronous_commit = {sync}"
)


class DriverRow(Protocol):
    """What a statement found, by column."""

    def __getitem__(self, column: str) -> Any: ...


class DriverConnection(Protocol):
    """A connection of the driver's, as far as it is used."""

    async def execute(self, query: str, *args: object, timeout: float) -> str: ...  # noqa: ASYNC109

    async def executemany(
        self,
        command: str,
        args: Sequence[Sequence[object]],
        *,
        timeout: float,  # noqa: ASYNC109
    ) -> None: ...

    async def fetch(
        self,
        query: str,
        *args: object,
        timeout: float,  # noqa: ASYNC109
    ) -> Sequence[DriverRow]: ...

    async def add_listener(
        self, channel: str, callback: Callable[["DriverConnection", int, str, str], None]
    ) -> None: ...

    def add_termination_listener(self, callback: Callable[["DriverConnection"], None]) -> None: ...

    async def close(self, *, timeout: float) -> None: ...  # noqa: ASYNC109

    def terminate(self) -> None: ...

    def is_closed(self) -> bool: ...

    def get_server_pid(self) -> int: ...


async def connect(address: PostgresAddress, *, prepares: bool) -> DriverConnection:
    """A new connection. Raises StoreAway where the server does not answer, StoreError."""
    settings = {"application_name": "tapeway"}
    if prepares:
        # Compiling takes milliseconds, and what is asked here takes less; a pooler may not know it.
        settings["jit"] = "off"
    try:
        connection: DriverConnection = await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_S,
            command_timeout=COMMAND_S,
            statement_cache_size=256 if prepares else 0,
            server_settings=settings,
        )
    except FAULTS as exc:
        # A driver that stumbles over the address shows what it stumbled over.
        cause = exc if address.hide(str(exc)) == str(exc) else None
        raise translated(exc, address, "connect") from cause
    return connection


class Session:
    """A connection while somebody has it."""

    def __init__(
        self, connection: DriverConnection, schema: str, limit_s: float = COMMAND_S
    ) -> None:
        self.connection = connection
        self._limit_s = limit_s
        self.at_rest = False
        """Whether no statement and no transaction is under way."""
        self.schema = schema

    async def run(self, sql: str, *args: object) -> int:
        """How many rows it changed."""
        said = await self.connection.execute(_in(self.schema, sql), *args, timeout=self._limit_s)
        last = said.rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    async def each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """The statement once for each row."""
        await self.connection.executemany(_in(self.schema, sql), rows, timeout=self._limit_s)

    async def rows(self, sql: str, *args: object) -> Sequence[DriverRow]:
        return await self.connection.fetch(_in(self.schema, sql), *args, timeout=self._limit_s)

    async def row(self, sql: str, *args: object) -> DriverRow | None:
        found = await self.rows(sql, *args)
        return found[0] if found else None


Work = Callable[[Session], Awaitable[T]]


class Pool:
    """At most so many connections, made when they are needed."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.pooled = True
        """Whether something may stand in between that gives each transaction another connection."""
        self.sync = "on"
        """What a durable transaction sets `synchronous_commit` to."""
        self.durability = "primary"
        self._free: list[DriverConnection] = []
        self._places = asyncio.Semaphore(address.connections)
        self._closed = False
        self._away: tuple[float, StoreError] | None = None

    async def connect(self) -> DriverConnection:
        """A connection of the caller's own. Raises StoreAway, StoreError."""
        if self._away is not None and time.monotonic() < self._away[0]:
            raise type(self._away[1])(self._away[1].message)
        try:
            connection = await connect(self.address, prepares=not self.pooled)
        except StoreAway as exc:
            self._away = (time.monotonic() + _AWAY_S, exc)
            raise
        self._away = None
        return connection

    async def close(self) -> None:
        self._closed = True
        await self.forget()

    async def forget(self) -> None:
        """Part from the connections nobody uses at this moment."""
        while self._free:
            await part(self._free.pop())

    async def read(self, deed: str, work: Work[T], *, limit: float = COMMAND_S) -> T:
        """Statements that each stand alone. Raises StoreAway, StoreError."""
        return await self._again(deed, work, None, 0.0, limit)

    async def write(
        self,
        deed: str,
        work: Work[T],
        *,
        durable: bool = True,
        patience: float = 0.0,
        limit: float = COMMAND_S,
    ) -> T:
        """One transaction; durable on return if it is to be. Raises StoreAway, StoreError.

        `work` is done again where its connection was lost, maybe after its commit.
        """
        sync = self.sync if durable else "off"
        idle = _IDLE_S if limit <= COMMAND_S else _LONG_IDLE_S
        begin = _BEGIN.format(sync=sync, limit=f"{limit * 1000:.0f}ms", idle=f"{idle}s")
        return await self._again(deed, work, begin, patience, limit)

    async def _again(
        self, deed: str, work: Work[T], begin: str | None, patience: float, limit: float
    ) -> T:
        until, tries = time.monotonic() + patience, 0
        while True:
            tries += 1
            try:
                async with self._session(limit) as session:
                    return await _done(session, work, begin)
            except StoreAway:
                if time.monotonic() >= until:
                    raise
            except errors.FAULTS as exc:
                passing = errors.is_lost(exc) or errors.is_clash(exc)
                timed_out = isinstance(exc, TimeoutError)
                late = time.monotonic() >= until and (tries >= _TRIES or timed_out)
                if not passing or late:
                    raise errors.translated(exc, self.address, deed) from exc
            await asyncio.sleep(_PAUSE_S if tries > 1 else 0)

    @asynccontextmanager
    async def _session(self, limit: float) -> AsyncIterator[Session]:
        if self._closed:
            raise closed(self.address.shown)
        try:
            async with asyncio.timeout(COMMAND_S):
                await self._places.acquire()
        except TimeoutError:
            raise StoreAway(
                f"{self.address.shown}: all {self.address.connections} connections are in use; "
                "try again, or allow more with ?connections="
            ) from None
        try:
            connection = self._idle() or await self.connect()
            session = Session(connection, self.address.schema, limit)
            try:
                yield session
            finally:
                await self._take_back(session)
        finally:
            self._places.release()

    async def _take_back(self, session: Session) -> None:
        if not session.at_rest:
            # In the middle of what, nobody knows.
            session.connection.terminate()
        elif self._closed:
            await part(session.connection)
        elif not session.connection.is_closed():
            self._free.append(session.connection)

    def _idle(self) -> DriverConnection | None:
        while self._free:
            if not (connection := self._free.pop()).is_closed():
                return connection
        return None


async def _done(session: Session, work: Work[T], begin: str | None) -> T:
    if begin is None:
        result = await work(session)
    else:
        await session.run(begin)
        try:
            result = await work(session)
        except TapewayError:
            await session.run("ROLLBACK")
            session.at_rest = True
            raise
        await session.run("COMMIT")
    session.at_rest = True
    return result


async def part(connection: DriverConnection) -> None:
    """End a connection, in order if the server answers."""
    try:
        await connection.close(timeout=1.0)
    except errors.FAULTS:
        connection.terminate()


@lru_cache(maxsize=512)
def _in(schema: str, sql: str) -> str:
    return sql.replace("@", f'"{schema}".')
