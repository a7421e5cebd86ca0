"""Connections to the server, and the transactions on them.

No transaction waits for the connection of another: a pool of a single connection is enough. In
statements, `@name` stands for a table of the store's schema, and `:now` for the time of the server's
clock in seconds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from math import inf
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID, uuid4

import asyncpg  # type: ignore[import-untyped]

from tapeway.core.json_text import Json, dump, parse
from tapeway.errors import StoreAway, StoreError, TapewayError, closed
from tapeway.stores.postgres import errors, tls
from tapeway.stores.postgres.address import PostgresAddress
from tapeway.stores.postgres.errors import FAULTS, translated

COMMAND_S = 5.0

APPENDING_CONNECTIONS = 2
"""For recordings that wait, and for claims and numbers meanwhile."""

OWN_CONNECTIONS = 3 + APPENDING_CONNECTIONS
"""Besides those of the pool: the heartbeat, the hits that wait and large bodies have one each too."""

SETTINGS = {
    # The statement is planned once, maybe while the tables are empty.
    **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin"), "off"),
    "plan_cache_mode": "force_generic_plan",
}
"""Of connections for the statements that make what waits."""

LONG_S = 600.0
"""Limit of work on a whole cassette."""

_NOW = "extract(epoch FROM clock_timestamp())::float8"

T = TypeVar("T")

PATIENCE_S = 8.0
"""How long a recording is retried: its response is paid for."""

_NONE: Mapping[str, str] = {}
_ATTEMPTS = 4
_PAUSE_S = 0.1

_RECONNECT_S = 0.25
"""For this many seconds after a failed connection, further ones fail at once."""
_CLOSE_S = 1.0
_IDLE_S = 5
_LONG_IDLE_S = 30

TAKEN = "23505"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# One round trip. A process suspended in a transaction must not keep its locks for ever.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    "SET LOCAL statement_timeout = '{limit}'; "
    "SET LOCAL idle_in_transaction_session_timeout = '{idle}'; "
    "SET LOCAL synchronous_commit = {sync}"
)


class DriverRow(Protocol):
    """A row of a result, by column or position."""

    def __getitem__(self, column: Any, /) -> Any: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class DriverConnection(Protocol):
    """The part of the driver's connection that is used."""

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

    def terminate(self) -> None: ...

    def is_closed(self) -> bool: ...

    def get_server_pid(self) -> int: ...


async def connect(
    address: PostgresAddress, *, prepares: bool, settings: Mapping[str, str] = _NONE
) -> DriverConnection:
    """A new connection. Raises StoreAway where the server does not answer, StoreError.

    Only a connection with `prepares` has the `settings`: a pooler may refuse settings of the server.
    """
    settings = {"application_name": address.application, **(settings if prepares else _NONE)}
    if prepares:
        # JIT compilation takes longer than these queries.
        settings["jit"] = "off"
    context = tls.context(address)
    try:
        connection: DriverConnection = await asyncpg.connect(
            address.dsn,
            ssl=context,
            timeout=address.connect_s,
            command_timeout=COMMAND_S,
            statement_cache_size=256 if prepares else 0,
            server_settings=settings,
        )
    except FAULTS as exc:
        # An error of the driver about the address may show its password.
        cause = exc if address.hide(str(exc)) == str(exc) else None
        raise translated(exc, address, "connect") from cause
    return connection


class Session:
    """A connection in use by a caller."""

    def __init__(
        self, connection: DriverConnection, schema: str, limit_s: float = COMMAND_S
    ) -> None:
        self.connection = connection
        self._limit_s = limit_s
        self.idle = False
        """Whether no statement and no transaction is under way."""
        self.schema = schema

    async def run(self, sql: str, *args: object) -> int:
        """Run a statement; how many rows it changed."""
        status = await self.connection.execute(
            _qualified(self.schema, sql), *args, timeout=self._limit_s
        )
        last = status.rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    async def each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement once for each row of arguments."""
        await self.connection.executemany(_qualified(self.schema, sql), rows, timeout=self._limit_s)

    async def rows(self, sql: str, *args: object) -> Sequence[DriverRow]:
        return await self.connection.fetch(
            _qualified(self.schema, sql), *args, timeout=self._limit_s
        )

    async def row(self, sql: str, *args: object) -> DriverRow | None:
        rows = await self.rows(sql, *args)
        return rows[0] if rows else None


Work = Callable[[Session], Awaitable[T]]


class Pool:
    """At most `address.connections` connections, opened when they are needed."""

    def __init__(self, address: PostgresAddress, settings: Mapping[str, str] = _NONE) -> None:
        """`settings` are those of the server for each connection, where no pooler is in between.

        The pool belongs to the event loop that runs at its first use.
        """
        self.address = address
        self._settings = settings
        self.pooled = True
        """Whether a pooler may give each transaction another connection."""
        self.sync = "on"
        """What a durable transaction sets `synchronous_commit` to."""
        self.durability = "primary"
        self.reads_only = False
        """Whether nothing can be written: a hot standby, or a role without the rights."""
        self._connections: asyncpg.Pool | None = None
        # Turns in order of arrival: in the driver's pool a newcomer may overtake.
        self._slots = asyncio.Semaphore(address.connections)
        self._closed = False
        self._unreachable: tuple[float, StoreError] | None = None

    @property
    def most_connections(self) -> int:
        """The most connections of this process, including connections outside the pool."""
        return self.address.connections + OWN_CONNECTIONS

    async def connect(self) -> DriverConnection:
        """A connection of the caller's own. Raises StoreAway, StoreError."""
        if self._unreachable is not None and time.monotonic() < self._unreachable[0]:
            raise type(self._unreachable[1])(self._unreachable[1].message)
        try:
            connection = await connect(
                self.address, prepares=not self.pooled, settings=self._settings
            )
        except StoreAway as exc:
            self._unreachable = (time.monotonic() + _RECONNECT_S, exc)
            raise
        self._unreachable = None
        return connection

    async def close(self) -> None:
        """Close all connections; connections still in use after a second are cut off."""
        self._closed = True
        if self._connections is not None:
            with suppress(*FAULTS):
                async with asyncio.timeout(_CLOSE_S):
                    await self._connections.close()

    async def renew_connections(self) -> None:
        """Use none of the connections that there are for further work."""
        if self._connections is not None:
            await self._connections.expire_connections()

    async def read(
        self, action: str, work: Work[T], *, patience: float = 0.0, limit: float = COMMAND_S
    ) -> T:
        """Run statements outside of a transaction. Raises StoreAway, StoreError."""
        return await self._again(action, work, patience, limit)

    async def snapshot(self, action: str, work: Work[T], *, limit: float = COMMAND_S) -> T:
        """Run queries on one snapshot. Raises StoreAway, StoreError."""
        return await self._again(
            action, partial(_in_transaction, begin=_SNAPSHOT, work=work), 0.0, limit
        )

    async def write(
        self,
        action: str,
        work: Work[T],
        *,
        durable: bool = True,
        patience: float = 0.0,
        limit: float = COMMAND_S,
    ) -> T:
        """Run `work` in one transaction. Raises StoreAway, StoreError.

        Where the connection was lost, maybe after the commit, `work` runs again: two runs must have
        the effect of one run.
        """
        begin = self._begin(limit, durable=durable)
        return await self._again(
            action, partial(_in_transaction, begin=begin, work=work), patience, limit
        )

    async def write_once(
        self,
        action: str,
        work: Work[T],
        *,
        patience: float = 0.0,
        limit: float = COMMAND_S,
    ) -> T:
        """Like `write` for a change that must not be made twice; its result is JSON."""
        begin, attempt = self._begin(limit, durable=True), uuid4()
        once = partial(_once, begin=begin, work=work, attempt=attempt)
        return await self._again(action, once, patience, limit)

    def _begin(self, limit: float, *, durable: bool) -> str:
        sync = self.sync if durable else "off"
        idle = _IDLE_S if limit <= COMMAND_S else _LONG_IDLE_S
        return _BEGIN.format(sync=sync, limit=f"{limit * 1000:.0f}ms", idle=f"{idle}s")

    async def _again(self, action: str, work: Work[T], patience: float, limit: float) -> T:
        until, attempts = time.monotonic() + patience, 0
        while True:
            attempts += 1
            try:
                async with self._session(limit) as session:
                    result = await work(session)
                    session.idle = True
                    return result
            except StoreAway:
                if time.monotonic() >= until:
                    raise
            except errors.FAULTS as exc:
                temporary = errors.is_lost(exc) or errors.is_conflict(exc)
                timed_out = isinstance(exc, TimeoutError)
                # A server that is read-only after a second connection stays so for a while.
                most = 2 if errors.is_read_only(exc) else _ATTEMPTS
                late = time.monotonic() >= until and (attempts >= most or timed_out)
                if not temporary or late:
                    raise errors.translated(exc, self.address, action) from exc
            await asyncio.sleep(_PAUSE_S if attempts > 1 else 0)

    @asynccontextmanager
    async def _session(self, limit: float) -> AsyncIterator[Session]:
        if self._closed:
            raise closed(self.address.shown)
        await self._wait_for_a_slot()
        try:
            pool = await self._opened()
            connection = await pool.acquire()
            session = Session(connection, self.address.schema, limit)
            try:
                yield session
            finally:
                if not session.idle:
                    # The transaction is in an unknown state. A connection that the server closed
                    # has left the pool already.
                    with suppress(asyncpg.InterfaceError):
                        connection.terminate()
                await pool.release(connection)
        finally:
            self._slots.release()

    async def _wait_for_a_slot(self) -> None:
        # Without a timer where nobody has to wait: a timer costs as much as the rest of a session.
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(COMMAND_S):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreAway(
                f"{self.address.shown}: all {self.address.connections} connections are in use; "
                "try again, or allow more with ?connections="
            ) from None

    async def _opened(self) -> asyncpg.Pool:
        if self._connections is None:
            self._connections = asyncpg.create_pool(
                connect=self._connect_for_pool,
                reset=_keep,
                min_size=0,
                max_size=self.address.connections,
                max_queries=inf,
                max_inactive_connection_lifetime=0,
            )
            # With no connection to open, this does not suspend: nobody else finds a half-open pool.
            await self._connections
        return self._connections

    async def _connect_for_pool(self, *_: object, **__: object) -> DriverConnection:
        return await self.connect()


async def _keep(_: DriverConnection) -> None:
    """Leave a connection as it is: no session has settings of its own."""


async def _in_transaction(session: Session, *, begin: str, work: Work[T]) -> T:
    await session.run(begin)
    result = await _rolled_back_on_error(session, work)
    await session.run("COMMIT")
    return result


async def _once(session: Session, *, begin: str, work: Work[T], attempt: UUID) -> T:
    """Run a transaction, unless an earlier run of this attempt was committed; its result.

    An earlier run may still be under way: the row of the attempt makes this run wait for the end of
    the earlier run. Where the answer of the commit was lost, the result stands beside the changes,
    whatever other transactions did in between.
    """
    try:
        await session.run(f"{begin}; INSERT INTO @attempt (id) VALUES ('{attempt}')")  # noqa: S608
    except errors.FAULTS as exc:
        if errors.state_of(exc) != TAKEN:
            raise
        await session.run("ROLLBACK")
        row = await session.row("SELECT result FROM @attempt WHERE id = $1", attempt)
        return cast("T", None if row is None or not row[0] else parse(row[0]))
    result = await _rolled_back_on_error(session, work)
    if result is None:
        await session.run("COMMIT")
    else:
        # Digits: the text of the statement holds nothing that anybody could have chosen.
        written = dump(cast("Json", result)).hex()
        await session.run(
            f"UPDATE @attempt SET result = decode('{written}', 'hex') "  # noqa: S608
            f"WHERE id = '{attempt}'; COMMIT"
        )
    return result


async def _rolled_back_on_error(session: Session, work: Work[T]) -> T:
    try:
        return await work(session)
    except TapewayError:
        await session.run("ROLLBACK")
        session.idle = True
        raise


@lru_cache(maxsize=512)
def _qualified(schema: str, sql: str) -> str:
    return sql.replace("@", f'"{schema}".').replace(":now", _NOW)
