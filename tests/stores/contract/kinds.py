"""Every kind of store there is, and what the contract suite has to know of each."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tapeway.formats.cassette_file import JSON, YAML, Serializer
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tapeway.stores.postgres.store import PostgresStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.model_store import ModelPlace, ModelStore
from tests.stores.object_server import object_server
from tests.stores.outside import install
from tests.stores.postgres_server import fresh
from tests.stores.remote.far_side import far_side

PASSWORD = "s3cret-of-the-store"

install()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cassettes of one test lie.

    `again` makes another store over the same place; `url` is what another process opens it by.
    """

    again: Callable[[], CassetteStore]
    url: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """The address of a place that cannot be used, and how the error names it.

    `cause` tells whether the error has another one as its cause.
    """

    url: str
    shown: str
    cause: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of store: where a test finds it, and what it promises.

    In a `shared` one an interaction keeps its index; elsewhere interactions are numbered by position
    in the cassette's final form. With
    `concurrent_writers` several stores may record into one cassette at the same time. `server` names
    the fixture that starts what the store needs and gives its address; where the machine cannot,
    that fixture skips and says why.
    """

    name: str
    place: Callable[[Path, str], AbstractAsyncContextManager[Place]]
    unusable: Callable[[Path, str], Unusable]
    concurrent_writers: bool = False
    shared: bool = False
    server: str = ""

    def __str__(self) -> str:
        return self.name

    def of_test(
        self, request: pytest.FixtureRequest, folder: Path
    ) -> AbstractAsyncContextManager[Place]:
        """An empty place of this kind for one test."""
        return self.place(folder, request.getfixturevalue(self.server) if self.server else "")


@asynccontextmanager
async def _memory(folder: Path, server: str) -> AsyncIterator[Place]:
    store = MemoryStore()
    yield Place(lambda: store, "memory:")


def _file(serializer: Serializer) -> Callable[[Path, str], AbstractAsyncContextManager[Place]]:
    @asynccontextmanager
    async def place(folder: Path, server: str) -> AsyncIterator[Place]:
        root = folder / "cassettes"
        store = FileStore(root, serializer)
        yield Place(lambda: FileStore(root, serializer), store.url)

    return place


def _a_file(folder: Path, server: str) -> Unusable:
    (folder / "taken").touch()
    return Unusable(f"file:{folder / 'taken'}", str(folder / "taken"), cause=False)


@asynccontextmanager
async def _sqlite(folder: Path, server: str) -> AsyncIterator[Place]:
    path = folder / "cassettes.db"
    yield Place(lambda: SqliteStore(path), f"sqlite:{path}")


def _no_database(folder: Path, server: str) -> Unusable:
    (folder / "taken").write_bytes(b"no database, " * 500)
    return Unusable(f"sqlite:{folder / 'taken'}", str(folder / "taken"), cause=True)


@asynccontextmanager
async def _model(folder: Path, server: str) -> AsyncIterator[Place]:
    place = ModelPlace()
    yield Place(lambda: ModelStore(place), "memory:")


@asynccontextmanager
async def _postgres(folder: Path, server: str) -> AsyncIterator[Place]:
    async with fresh(server) as url:
        yield Place(lambda: PostgresStore(url), url)


def _a_closed_port(folder: Path, server: str) -> Unusable:
    url = f"postgresql://tapeway:{PASSWORD}@127.0.0.1:1/nowhere"
    return Unusable(url, "postgresql://tapeway:***@127.0.0.1:1/nowhere", cause=True)


@asynccontextmanager
async def _remote(folder: Path, server: str) -> AsyncIterator[Place]:
    async with far_side(FileStore(folder / "cassettes")) as far:
        yield Place(far.store, far.url)


@asynccontextmanager
async def _outside(folder: Path, server: str) -> AsyncIterator[Place]:
    async with object_server() as objects:
        yield Place(lambda: open_store(objects.url), objects.url)


def _no_bucket(folder: Path, server: str) -> Unusable:
    return Unusable("objects://127.0.0.1:1/bucket", "127.0.0.1:1", cause=True)


def _an_absent_listener(folder: Path, server: str) -> Unusable:
    return Unusable(f"http://{PASSWORD}@127.0.0.1:1", "http://127.0.0.1:1", cause=True)


KINDS = [
    Kind(
        "memory",
        _memory,
        lambda folder, server: Unusable("memory:somewhere", "memory:somewhere", cause=False),
        concurrent_writers=True,
    ),
    Kind("file", _file(JSON), _a_file),
    Kind("file-yaml", _file(YAML), _a_file),
    Kind("sqlite", _sqlite, _no_database),
    Kind(
        "postgresql",
        _postgres,
        _a_closed_port,
        concurrent_writers=True,
        shared=True,
        server="postgres_dsn",
    ),
    Kind("remote", _remote, _an_absent_listener),
]

OUTSIDE = Kind("outside", _outside, _no_bucket)
"""A store of another package, which tapeway finds by an entry point."""

MODEL = Kind(
    "model",
    _model,
    lambda folder, server: Unusable("memory:somewhere", "memory:somewhere", cause=False),
    concurrent_writers=True,
    shared=True,
)
"""Keeps the same promises in dictionaries: what it does is what every store is to do."""
