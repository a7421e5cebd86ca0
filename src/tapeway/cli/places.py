"""Cassettes as they are named on the command line: by name in the store, by file, or by store and
name as `STORE#NAME`.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.model.cassette import Held, StoredCassette
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.cassette_file import ENDINGS
from tapeway.paging import CassetteWalk, walk_cassette
from tapeway.ports import CassetteStore, SharedStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.opening import open_store

_STORE = re.compile(
    r"(file|memory|sqlite|postgres|postgresql|http|https):|[a-z][a-z0-9+.-]*://", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Place:
    """A cassette in an open store; `shown` names it without any password."""

    store: CassetteStore
    name: str
    shown: str

    async def load(self, *, writable: bool = False) -> StoredCassette:
        """What it holds. Raises ConfigError where there is none, StoreError."""
        stored = await self.store.load(self.name, writable=writable)
        if stored is None:
            raise self.missing
        return stored

    async def walk(self) -> CassetteWalk:
        """The same, to be gone through in order. Raises ConfigError, StoreError."""
        found = await walk_cassette(self.store, self.name)
        if found is None:
            raise self.missing
        return found

    async def get(self, index: int) -> Held | None:
        """One interaction. Raises ConfigError, StoreError."""
        if isinstance(self.store, SharedStore):
            one = await self.store.get(self.name, index)
            if one is None and await self.store.outline(self.name) is None:
                raise self.missing
            return None if one is None else one.item
        items = (await self.walk()).items
        return await anext((each async for each in items if each.index == index), None)

    @property
    def missing(self) -> ConfigError:
        """The error for a cassette that is not there."""
        if "#" in self.shown:
            return ConfigError(f"there is no cassette {self.shown}")
        return ConfigError(f"there is no cassette {self.shown} in {self.store.url}")


@asynccontextmanager
async def place(written: str, store: str) -> AsyncIterator[Place]:
    """The cassette meant by a name in the store, a file's path, or `STORE#NAME`.

    Raises ConfigError for what is neither and for a store that cannot be opened, StoreError.
    """
    found = find(written, store)
    async with opened(found.store):
        yield found


def find(written: str, store: str) -> Place:
    """The same in a store that is not open yet. Raises ConfigError."""
    if is_address(written):
        return _of_address(written)
    path = Path(written)
    if notation := ENDINGS.get(path.suffix):
        return Place(FileStore(path.parent, notation), _checked(path.stem, written), written)
    return Place(open_store(store), _checked(written, written), written)


@asynccontextmanager
async def opened(store: CassetteStore) -> AsyncIterator[CassetteStore]:
    """The store, open. Raises ConfigError where it cannot be opened, StoreError."""
    try:
        await store.open()
    except StoreError as exc:
        raise ConfigError(exc.message) from exc
    try:
        yield store
    finally:
        await store.close()


def check_lasting(store: CassetteStore) -> None:
    """Raise ConfigError for a store that begins and ends with the command."""
    if store.url == "memory:":
        raise ConfigError("memory: begins and ends with this command: give another store")


def is_address(written: str) -> bool:
    """Whether this begins as the address of a store does: such a thing may hold a password."""
    return _STORE.match(written) is not None


def _of_address(written: str) -> Place:
    # No name has the sign, while a file's may.
    address, sign, name = written.rpartition("#")
    if not sign:
        scheme = written.partition(":")[0]
        raise ConfigError(
            f"{scheme}:… is a store, and a cassette is asked for: add its name, as in "
            f"'{scheme}:…#smoke'"
        )
    store = open_store(address)
    if not valid_cassette_name(name):
        raise ConfigError(f"{store.url}#{name}: {name!r} is no name of a cassette")
    return Place(store, name, f"{store.url}#{name}")


def _checked(name: str, written: str) -> str:
    if not valid_cassette_name(name):
        raise ConfigError(
            f"{written!r} is neither the name of a cassette, such as suite/case-1, nor a file "
            f"that ends in {', '.join(ENDINGS)}, nor STORE#NAME"
        )
    return name
