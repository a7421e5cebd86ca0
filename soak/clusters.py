"""What is attacked: four instances over PostgreSQL, or one process over SQLite."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from soak.history import FaultKind, Kind
from soak.network import Relay
from soak.schedule import INSTANCES
from tests.process.serving import Tapeway
from tests.stores.postgres_server import PostgresServer, run
from tests.stores.small_disks import small_disk
from tests.support.reuse import reuse_all

LEASE_S = 4
_DISK_KIB = {"postgres": 320 * 1024, "sqlite": 128 * 1024}
"""Only a fault fills a disk: it has room for all recordings of a long run, and for a rewrite."""
_SLEEP = """import threading, time
# The library refuses what Python sleeps by: clock_nanosleep up to a moment of the monotonic clock.
time.sleep = lambda seconds: threading.Event().wait(seconds) and None
"""
_SHIFT = """import datetime, pathlib, time
_offset, _real, _now = pathlib.Path(__file__).with_name("offset"), time.time, datetime.datetime.now
_UNITS = {"h": 3600, "d": 86400}

def _seconds():
    text = _offset.read_text()
    return int(text[:-1]) * _UNITS[text[-1]]

class datetime_of_it(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return _now(tz) + datetime.timedelta(seconds=_seconds())

time.time = lambda: _real() + _seconds()
time.time_ns = lambda: int(time.time() * 1e9)
datetime.datetime = datetime_of_it
"""
_PREFIX = "lib*/*/faketime/libfaketimeMT.so.1"


def libfaketime() -> Path | None:
    """The library that lets a process see another time, if it is installed."""
    return next(iter(sorted(Path("/usr").glob(_PREFIX))), None)


class Clock:
    """The wall clock of some processes, which jumps; their monotonic one goes on."""

    customization = _SLEEP

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._file = folder / "offset"
        (folder / "sitecustomize.py").write_text(self.customization)
        self.jump("+0h")

    def jump(self, offset: str) -> None:
        """Show the time with this offset, such as `-2d`."""
        # In one step: a process that finds the file empty would show the year 1970.
        new = self._file.with_suffix(".new")
        new.write_text(offset)
        new.rename(self._file)

    @property
    def environ(self) -> dict[str, str]:
        """What a process must be started with."""
        return {
            "LD_PRELOAD": str(libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(self._file.parent),
        }


class PythonClock(Clock):
    """The wall clock that Python shows. Under libfaketime, SQLite's threads hardly get on."""

    customization = _SHIFT

    @property
    def environ(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self._file.parent)}


class Cluster:
    """Processes on one store, and what can be done to them."""

    kind: Kind

    def __init__(self, folder: Path, upstream: str, key: str, *, jumping: bool) -> None:
        """`jumping` starts the first instance so that its clock can jump."""
        self.folder = folder
        self.upstream = upstream
        self.key = key
        self.jumping = jumping
        self.clock: Clock | None = None
        self.disk: Path | None = None
        """A small disk that the store is on, where it is."""
        self.members: list[Tapeway] = []

    @property
    def store(self) -> str:
        """The address of the store, without anything in between."""
        raise NotImplementedError

    def proxy(self, instance: int) -> str:
        """Where requests for an instance go."""
        return self.members[instance % len(self.members)].proxy

    def member(self, instance: int) -> Tapeway:
        """Whose admin API is called for an instance."""
        return self.members[instance % len(self.members)]

    def processes(self, instance: int) -> Sequence[int]:
        """What is killed or stopped."""
        raise NotImplementedError

    def why_not(self, kind: FaultKind) -> str | None:
        """Why a fault cannot be made here."""
        if kind == "clock" and self.clock is None:
            return "libfaketime is not installed"
        if kind == "full" and self.disk is None:
            return "no small disk may be mounted here"
        return None

    async def well(self) -> None:
        """Return when all processes are ready for everything."""
        for member in self.members:
            await member.at_work()

    async def stop(self) -> Iterator[str]:
        """Stop all in order; what was not as it should be."""
        codes = [await member.stopped() for member in self.members]
        return self._complaints(codes)

    def _complaints(self, codes: Sequence[int]) -> Iterator[str]:
        for code, member in zip(codes, self.members, strict=True):
            if code:
                yield f"exit code {code}: {member.stderr.splitlines()[-1]}"
            if "Traceback" in member.stderr:
                yield f"a traceback in {member.stderr}"

    async def stored(self) -> AsyncIterator[tuple[str, bytes]]:
        """What lies in the store and in logs, with its place, to be searched."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.name.startswith("ballast"):
                yield str(path.relative_to(self.folder)), path.read_bytes()


class PostgresInstances(Cluster):
    """Instances with a relay each between them and the database."""

    kind = "postgres"

    def __init__(
        self,
        folder: Path,
        upstream: str,
        key: str,
        server: PostgresServer,
        schema: str,
        *,
        jumping: bool,
    ) -> None:
        super().__init__(folder, upstream, key, jumping=jumping)
        self.server = server
        self._schema = schema
        self.relays: list[Relay] = []

    @property
    def store(self) -> str:
        return f"{self.server.dsn}?schema={self._schema}&lease={LEASE_S}"

    def processes(self, instance: int) -> Sequence[int]:
        return [self.members[instance].pid]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block runs."""
        async with AsyncExitStack() as stack:
            place = f"@{urlsplit(self.server.dsn).netloc.rpartition('@')[2]}/"
            if self.jumping and libfaketime() is not None:
                self.clock = Clock(self.folder / "clock")
            for number in range(INSTANCES):
                relay = await stack.enter_async_context(Relay(self.server.dsn))
                self.relays.append(relay)
                own = self.folder / f"instance-{number}"
                own.mkdir()
                # What a take recorded is not asked for again: the checker knows no other rule.
                reuse_all(own)
                url = self.store.replace(place, f"@127.0.0.1:{relay.port}/")
                member = Tapeway(
                    *(own, "--store", url, "--upstream", self.upstream),
                    *("--config", str(own / "tapeway.toml")),
                    environ=None if self.clock is None or number else self.clock.environ,
                )
                member.key = self.key
                self.members.append(member)
                stack.push_async_callback(member.kill)
            await asyncio.gather(*[started.start() for started in self.members])
            yield

    async def stored(self) -> AsyncIterator[tuple[str, bytes]]:
        async for interaction in super().stored():
            yield interaction
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = $1"
        for (name,) in await run(self.server.dsn, sql, self._schema):
            for row in await run(self.server.dsn, f'SELECT * FROM "{self._schema}".{name}'):  # noqa: S608
                for value in row:
                    raw = value if isinstance(value, bytes) else str(value).encode()
                    yield f"table {name}", raw


class SqliteProcess(Cluster):
    """One process over SQLite, for every client."""

    kind = "sqlite"

    @property
    def store(self) -> str:
        return f"sqlite:{self.folder}/disk/all.db"

    def processes(self, instance: int) -> Sequence[int]:
        return [self.members[0].pid]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block runs."""
        if self.jumping:
            self.clock = PythonClock(self.folder / "clock")
        reuse_all(self.folder)
        process = Tapeway(
            *(self.folder, "--store", self.store, "--upstream", self.upstream),
            *("--config", str(self.folder / "tapeway.toml")),
            environ=None if self.clock is None else self.clock.environ,
        )
        process.key = self.key
        self.members.append(process)
        (self.folder / "disk").mkdir(exist_ok=True)
        try:
            await process.start()
            yield
        finally:
            await process.kill()


@contextmanager
def limited_disk(folder: Path, kind: Kind) -> Iterator[Path | None]:
    """A small disk on a folder; None where none may be mounted."""
    with ExitStack() as stack:
        try:
            stack.enter_context(small_disk(folder, _DISK_KIB[kind]))
        except pytest.skip.Exception:
            yield None
        else:
            yield folder
