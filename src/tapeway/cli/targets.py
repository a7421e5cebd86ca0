"""Which cassettes a command is about: names in the store, files, folders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tapeway.core.routing import valid_cassette_name
from tapeway.errors import ConfigError
from tapeway.stores.file import FileStore
from tapeway.stores.opening import open_store
from tapeway.stores.paths import CASSETTE, find_names

_MARK = b'"interactions"'
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
        return str(self.beside or self.root / f"{self.name}{CASSETTE}")


def targets(arguments: Sequence[str], store: str, *, strict: bool = False) -> list[Target]:
    """What the arguments name, or all cassettes of the store where there are none.

    A file that is no cassette is passed over with a note, or refused where that is `strict`.
    Raises ConfigError.
    """
    if not arguments:
        return list(_of_folder(folder_of(store), strict=strict))
    return [target for each in arguments for target in _of_argument(each, store, strict=strict)]


def folder_of(store: str) -> Path:
    """The folder of a store. Raises ConfigError for one that is none."""
    opened = open_store(store)
    if not isinstance(opened, FileStore):
        raise ConfigError(f"the store {opened.url} is no folder: its cassettes have no files")
    return opened.root


def _of_argument(argument: str, store: str, *, strict: bool) -> Iterator[Target]:
    path = Path(argument)
    if path.is_dir():
        yield from _of_folder(path, strict=strict)
    elif path.is_file():
        yield from _of_file(path, strict=strict)
    elif valid_cassette_name(argument) and path.suffix != CASSETTE:
        yield Target(folder_of(store), argument)
    else:
        raise ConfigError(f"{argument}: there is no such file, and it is no name of a cassette")


def _of_folder(folder: Path, *, strict: bool) -> Iterator[Target]:
    try:
        names = find_names(folder)
    except OSError as exc:
        raise ConfigError(f"{folder}: cannot be listed ({exc.strerror})") from exc
    for name in names:
        file = folder / f"{name}{CASSETTE}"
        if not file.is_file() or _is_cassette(file, strict=strict):
            yield Target(folder, name)


def _of_file(path: Path, *, strict: bool) -> Iterator[Target]:
    if path.parent.suffix == _ASSETS:
        yield Target(path.parent.parent, path.parent.stem, path)
    elif _is_cassette(path, strict=strict):
        yield Target(path.parent, path.stem)


def _is_cassette(path: Path, *, strict: bool) -> bool:
    try:
        if path.suffix == CASSETTE and _MARK in path.read_bytes():
            return True
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc
    if strict:
        raise ConfigError(f"{path} is no cassette")
    click.echo(f"tapeway: {path} is no cassette: passed over", err=True)
    return False
