"""Cassettes as they are named on the command line: by name in the store, or by file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tapeway.core.model import StoredCassette
from tapeway.core.routing import valid_cassette_name
from tapeway.errors import ConfigError
from tapeway.formats.notation import ENDINGS
from tapeway.ports import CassetteStore
from tapeway.stores.file import FileStore
from tapeway.stores.opening import open_store


@dataclass(frozen=True, slots=True)
class Place:
    """A cassette in an open store."""

    store: CassetteStore
    name: str
    shown: str

    async def load(self, *, writable: bool = False) -> StoredCassette:
        """What it holds. Raises ConfigError where there is none, StoreError."""
        stored = await self.store.load(self.name, writable=writable)
        if stored is None:
            raise ConfigError(f"there is no cassette {self.shown} in {self.store.url}")
        return stored


@asynccontextmanager
async def place(written: str, store: str) -> AsyncIterator[Place]:
    """The cassette meant by a name in the store, or by the path of a file.

    Raises ConfigError for what is neither, StoreError where the store cannot be used.
    """
    opened, name = _read(written, store)
    await opened.open()
    try:
        yield Place(opened, name, written)
    finally:
        await opened.close()


def _read(written: str, store: str) -> tuple[CassetteStore, str]:
    path = Path(written)
    if notation := ENDINGS.get(path.suffix):
        return FileStore(path.parent, notation), _checked(path.stem, written)
    return open_store(store), _checked(written, written)


def _checked(name: str, written: str) -> str:
    if not valid_cassette_name(name):
        raise ConfigError(
            f"{written!r} is neither the name of a cassette, such as suite/case-1, nor a file "
            f"that ends in {', '.join(ENDINGS)}"
        )
    return name
