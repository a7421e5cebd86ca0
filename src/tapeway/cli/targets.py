"""Which cassettes a command is about: names in the store, files, folders."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tapeway.cli.places import Place, check_lasting, find, is_address, opened
from tapeway.core.http.routing import valid_cassette_name
from tapeway.errors import ConfigError
from tapeway.formats.cassette_file import ENDINGS, JSON, YAML
from tapeway.ports import CassetteStore
from tapeway.stores.file.paths import find_names
from tapeway.stores.file.store import FileStore
from tapeway.stores.opening import open_store

# In YAML a test's `cassettes` often are VCR.py's, which have interactions of no kind.
_MARKS = {
    JSON: [re.compile(rb'"interactions"')],
    YAML: [re.compile(rb"\binteractions[\"']?\s*:"), re.compile(rb"\bkind[\"']?\s*:")],
}
_ASSETS = ".assets"


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

    place: Place


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
    files = [root / f"{name}{ending}" for ending in ENDINGS]
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
    elif valid_cassette_name(argument) and path.suffix not in ENDINGS:
        yield _of_name(argument, store)
    else:
        raise ConfigError(f"{argument}: there is no such file, and it is no name of a cassette")


def _of_name(name: str, store: str) -> Target | Stored:
    opened_anew = open_store(store)
    return _of_place(Place(opened_anew, name, f"{opened_anew.url}#{name}"))


def _of_place(found: Place) -> Target | Stored:
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
        if notation := ENDINGS.get(path.suffix):
            text = path.read_bytes()
            if all(mark.search(text) for mark in _MARKS[notation]):
                return True
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc
    if strict:
        raise ConfigError(f"{path} is no cassette")
    click.echo(f"tapeway: {path} is no cassette: passed over", err=True)
    return False
