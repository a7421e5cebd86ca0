"""Cassettes as they are named on the command line: by name in the store, by file, or by store and
name as `STORE#NAME`.

Which cassettes a command is about: names in the store, files, folders.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.cassette_file import JSON, SERIALIZER_BY_SUFFIX, YAML
from tapeway.paging import CassetteWalk, walk_cassette
from tapeway.ports import CassetteStore
from tapeway.stores.file.paths import find_names
from tapeway.stores.file.store import FileStore
from tapeway.stores.opening import open_store

_STORE = re.compile(
    r"(file|memory|sqlite|postgres|postgresql|http|https):|[a-z][a-z0-9+.-]*://", re.IGNORECASE
)

# In YAML a test's `cassettes` often are VCR.py's, which have interactions of no kind.
_MARKS = {
    JSON: [re.compile(rb'"interactions"')],
    YAML: [re.compile(rb"\binteractions[\"']?\s*:"), re.compile(rb"\bkind[\"']?\s*:")],
}
_ASSETS = ".assets"


@dataclass(frozen=True, slots=True)
class CassettePlace:
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

    async def get(self, index: int) -> AnyInteraction | None:
        """One interaction. Raises ConfigError, StoreError."""
        if (shared := self.store.capabilities.shared) is not None:
            one = await shared.get(self.name, index)
            if one is None and await shared.outline(self.name) is None:
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
async def place(written: str, store: str) -> AsyncIterator[CassettePlace]:
    """The cassette meant by a name in the store, a file's path, or `STORE#NAME`.

    Raises ConfigError for what is neither and for a store that cannot be opened, StoreError.
    """
    found = find(written, store)
    async with opened(found.store):
        yield found


def find(written: str, store: str) -> CassettePlace:
    """The same in a store that is not open yet. Raises ConfigError."""
    if is_address(written):
        return _of_address(written)
    path = Path(written)
    if serializer := SERIALIZER_BY_SUFFIX.get(path.suffix):
        return CassettePlace(
            FileStore(path.parent, serializer), _checked(path.stem, written), written
        )
    return CassettePlace(open_store(store), _checked(written, written), written)


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


def _of_address(written: str) -> CassettePlace:
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
    return CassettePlace(store, name, f"{store.url}#{name}")


def _checked(name: str, written: str) -> str:
    if not valid_cassette_name(name):
        raise ConfigError(
            f"{written!r} is neither the name of a cassette, such as suite/case-1, nor a file "
            f"that ends in {', '.join(SERIALIZER_BY_SUFFIX)}, nor STORE#NAME"
        )
    return name


@dataclass(frozen=True, slots=True)
class Target:
    """A cassette in a folder. `beside` is a large body of one, which is a target of its own."""

    root: Path
    name: str
    beside: Path | None = None

    @property
    def shown(self) -> str:
        """Its file, for messages."""
        if self.beside is not None:
            return str(self.beside)
        return str([*files_of(self.root, self.name), self.root / f"{self.name}.json"][0])


@dataclass(frozen=True, slots=True)
class Stored:
    """A cassette in a store without files, which is not open yet."""

    place: CassettePlace


def targets(arguments: Sequence[str], store: str, *, strict: bool = False) -> list[Target | Stored]:
    """What the arguments name, or all cassettes of the store where there are none.

    A file that is no cassette is passed over with a note, or refused where that is `strict`.
    Raises ConfigError, StoreError.
    """
    if not arguments:
        return list(_of_store(store, strict=strict))
    return [target for each in arguments for target in _of_argument(each, store, strict=strict)]


def files_of(root: Path, name: str) -> list[Path]:
    """The files a cassette has: one, none while it is in its journal, or by mistake several."""
    files = [root / f"{name}{ending}" for ending in SERIALIZER_BY_SUFFIX]
    return [each for each in files if each.is_file()]


def _of_store(store: str, *, strict: bool) -> Iterator[Target | Stored]:
    found = open_store(store)
    if isinstance(found, FileStore):
        yield from _of_folder(found.root, strict=strict)
        return
    check_lasting(found)
    for name in asyncio.run(_names(found)):
        yield _of_name(name, store)


async def _names(store: CassetteStore) -> Sequence[str]:
    async with opened(store):
        return await store.names()


def _of_argument(argument: str, store: str, *, strict: bool) -> Iterator[Target | Stored]:
    path = Path(argument)
    if is_address(argument):
        yield _of_place(find(argument, store))
    elif path.is_dir():
        yield from _of_folder(path, strict=strict)
    elif path.is_file():
        yield from _of_file(path, strict=strict)
    elif valid_cassette_name(argument) and path.suffix not in SERIALIZER_BY_SUFFIX:
        yield _of_name(argument, store)
    else:
        raise ConfigError(f"{argument}: there is no such file, and it is no name of a cassette")


def _of_name(name: str, store: str) -> Target | Stored:
    opened_anew = open_store(store)
    return _of_place(CassettePlace(opened_anew, name, f"{opened_anew.url}#{name}"))


def _of_place(found: CassettePlace) -> Target | Stored:
    if isinstance(found.store, FileStore):
        return Target(found.store.root, found.name)
    check_lasting(found.store)
    return Stored(found)


def _of_folder(folder: Path, *, strict: bool) -> Iterator[Target]:
    try:
        names = find_names(folder)
    except OSError as exc:
        raise ConfigError(f"{folder}: cannot be listed ({exc.strerror})") from exc
    for name in names:
        files = files_of(folder, name)
        if not files or any(_is_cassette(each, strict=strict) for each in files):
            yield Target(folder, name)


def _of_file(path: Path, *, strict: bool) -> Iterator[Target]:
    if path.parent.suffix == _ASSETS:
        yield Target(path.parent.parent, path.parent.stem, path)
    elif _is_cassette(path, strict=strict):
        yield Target(path.parent, path.stem)


def _is_cassette(path: Path, *, strict: bool) -> bool:
    try:
        if serializer := SERIALIZER_BY_SUFFIX.get(path.suffix):
            text = path.read_bytes()
            if all(mark.search(text) for mark in _MARKS[serializer]):
                return True
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc
    if strict:
        raise ConfigError(f"{path} is no cassette")
    click.echo(f"tapeway: {path} is no cassette: passed over", err=True)
    return False
