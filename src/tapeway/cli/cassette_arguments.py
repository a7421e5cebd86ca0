"""The cassettes that the arguments of a command mean.

A cassette is named by its name in the store, by its file, or by both store and name as
`STORE#NAME`. `scan` and `redact` also take folders, and the files of large bodies.
"""

import re
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from tapeway.cli import terminal
from tapeway.core.cassette.branches import BASE_FIELD, flattened
from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.model.messages import BodyFile
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.cassette_file import JSON, SERIALIZER_BY_SUFFIX, YAML
from tapeway.formats.registry import tool_of
from tapeway.paging import CassetteRef, layers_of
from tapeway.ports import CassetteStore
from tapeway.stores.file.paths import find_names
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store

_ADDRESS = re.compile(
    r"(file|memory|sqlite|postgres|postgresql|http|https):|[a-z][a-z0-9+.-]*://", re.IGNORECASE
)
"""Beside the schemes of tapeway's own stores any with two slashes, as packages may add them."""

# In YAML a test's `cassettes` often are VCR.py's, whose interactions have no kind.
_CASSETTE_FIELDS = {
    JSON: [re.compile(rb'"interactions"')],
    YAML: [re.compile(rb"\binteractions[\"']?\s*:"), re.compile(rb"\bkind[\"']?\s*:")],
}
ASSETS = ".assets"
"""How the name of the folder with a cassette's large bodies ends."""


@asynccontextmanager
async def open_cassette(argument: str, store: str) -> AsyncIterator[CassetteRef]:
    """The cassette named by an argument, in an open store.

    Raises ConfigError for an argument that names none and a store that cannot be opened, StoreError.
    """
    cassette = locate(argument, store)
    async with opened(cassette.store):
        yield cassette


@asynccontextmanager
async def opened(store: CassetteStore) -> AsyncIterator[CassetteStore]:
    """The store, open. Raises ConfigError if it cannot be opened, StoreError."""
    try:
        await store.open()
    except StoreError as exc:
        raise ConfigError(exc.message) from exc
    try:
        yield store
        # Removed data that other users can still read.
        for warning in await store.erase():
            terminal.print_error(warning)
    finally:
        await store.close()


class OpenStores:
    """The stores of a command over several cassettes: each store is opened once."""

    def __init__(self) -> None:
        self._stores: dict[str, CassetteStore] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def cassette(self, located: CassetteRef) -> AsyncIterator[CassetteRef]:
        """The cassette in its open store. Raises ConfigError if it cannot be opened, StoreError."""
        store = await self.opened(located.store)
        try:
            yield replace(located, store=store)
        finally:
            await store.release(located.name)

    async def opened(self, store: CassetteStore) -> CassetteStore:
        """The store, opened once for each URL. Raises ConfigError, StoreError."""
        known = self._stores.get(store.url)
        if known is None:
            known = await self._stack.enter_async_context(opened(store))
            self._stores[store.url] = known
        return known


async def with_bases(cassette: CassetteRef) -> CassetteRef:
    """A cassette of an open store, in memory with what it has from its bases; itself without any.

    Raises StoreError.
    """
    outline = await cassette.store.outline(cassette.name)
    if outline is None or BASE_FIELD not in outline.head.meta:
        return cassette
    stored = await cassette.load()
    below = partial(cassette.store.load, writable=False)
    layers = await layers_of(cassette.name, stored.head, below)
    memory = MemoryStore()
    whole, _ = flattened(cassette.name, stored, layers)
    await memory.save(cassette.name, whole)
    return replace(cassette, store=memory)


def locate(argument: str, store: str) -> CassetteRef:
    """The cassette that an argument names, in a store that is not open yet. Raises ConfigError."""
    if is_address(argument):
        return _at_address(argument)
    path = real_file(Path(argument))
    if serializer := SERIALIZER_BY_SUFFIX.get(path.suffix):
        return CassetteRef(
            FileStore(path.parent, serializer), _checked(path.stem, argument), argument
        )
    if path.is_file():
        _refuse_other_tools(path, argument)
    return CassetteRef(open_store(store), _checked(argument, argument), argument)


def _refuse_other_tools(path: Path, argument: str) -> None:
    try:
        with path.open("rb") as file:
            tool = tool_of(file, path.suffix)
    except OSError as exc:
        raise ConfigError(f"{argument}: cannot be read ({exc.strerror})") from exc
    if tool is not None:
        raise ConfigError(
            f"{argument} holds recordings of {tool}: to bring them over, run "
            f"tapeway cassette convert {shlex.quote(argument)} NAME"
        )


def real_file(path: Path) -> Path:
    """The file that a path in an argument leads to.

    A store refuses links to its files, since others may name cassettes; who names a file means it.
    """
    return path.resolve() if path.is_symlink() else path


def is_address(argument: str) -> bool:
    """Whether this begins like a store's address, and so may hold a password."""
    return _ADDRESS.match(argument) is not None


def is_in_store(argument: str) -> bool:
    """Whether this is a cassette's name in the store from `--store`, and not a place by itself."""
    return not is_address(argument) and Path(argument).suffix not in SERIALIZER_BY_SUFFIX


def is_target_in_store(argument: str) -> bool:
    """Whether an argument of `find_targets` is a cassette's name, and no file or folder."""
    return is_in_store(argument) and not Path(argument).exists()


def existing(store: CassetteStore) -> CassetteStore:
    """The store. Raises ConfigError for a missing folder or SQLite file.

    A server makes folder and file with the first recording; a command that reads was given a wrong
    store.
    """
    path = store.facts.folder or store.facts.file
    if path is not None and not path.exists():
        raise ConfigError(f"there is no store {store.url}: {path} does not exist; see --store")
    return store


def check_persistent(store: CassetteStore) -> None:
    """Raise ConfigError for the store in memory, which ends with the command."""
    if store.url == "memory:":
        raise ConfigError("memory: begins and ends with this command: give another store")


def _at_address(argument: str) -> CassetteRef:
    # A cassette's name cannot contain the sign, while an address can.
    address, sign, name = argument.rpartition("#")
    if not sign:
        scheme = argument.partition(":")[0]
        raise ConfigError(
            f"{scheme}:… is a store, and a cassette is needed: add its name, as in "
            f"'{scheme}:…#smoke'"
        )
    store = open_store(address)
    if not valid_cassette_name(name):
        raise ConfigError(f"{store.url}#{name}: {name!r} is no name of a cassette")
    return CassetteRef.of(store, name)


def _checked(name: str, argument: str) -> str:
    if not valid_cassette_name(name):
        raise ConfigError(
            f"{argument!r} is neither the name of a cassette, such as suite/case-1, nor a file "
            f"that ends in {', '.join(SERIALIZER_BY_SUFFIX)}, nor STORE#NAME"
        )
    return name


Target = CassetteRef | BodyFile
"""A cassette in a store that is not open yet, or a large body alone."""


async def find_targets(
    arguments: Sequence[str], store: str, stores: OpenStores, *, strict: bool = False
) -> list[Target]:
    """The cassettes that the arguments name, or without any all cassettes of the store.

    A file that is no cassette is skipped with a note, or refused if `strict`.
    Raises ConfigError, StoreError.
    """
    if not arguments:
        return await _all_in_store(store, stores, strict=strict)
    return [
        target for argument in arguments for target in _of_argument(argument, store, strict=strict)
    ]


def files_of(root: Path, name: str) -> list[Path]:
    """A cassette's files: one, none while only its journal exists, or several by mistake."""
    files = [root / f"{name}{ending}" for ending in SERIALIZER_BY_SUFFIX]
    return [file for file in files if file.is_file()]


async def _all_in_store(url: str, stores: OpenStores, *, strict: bool) -> list[Target]:
    store = existing(open_store(url))
    if (folder := store.facts.folder) is not None:
        return list(_in_folder(folder, strict=strict))
    check_persistent(store)
    return [CassetteRef.of(store, name) for name in await (await stores.opened(store)).names()]


def _of_argument(argument: str, store: str, *, strict: bool) -> Iterator[Target]:
    path = Path(argument)
    if is_address(argument):
        yield _shown_by_file(locate(argument, store))
    elif path.is_dir():
        yield from _in_folder(path, strict=strict)
    elif path.is_file():
        yield from _of_file(real_file(path), strict=strict)
    elif valid_cassette_name(argument) and path.suffix not in SERIALIZER_BY_SUFFIX:
        yield _shown_by_file(CassetteRef.of(open_store(store), argument))
    else:
        raise ConfigError(f"{argument}: there is no such file, and it is no name of a cassette")


def _shown_by_file(cassette: CassetteRef) -> CassetteRef:
    """The cassette, shown as its file if it is in a folder. Raises ConfigError."""
    check_persistent(cassette.store)
    if (folder := cassette.store.facts.folder) is None:
        return cassette
    files = files_of(folder, cassette.name)
    return replace(cassette, shown=str([*files, folder / f"{cassette.name}.json"][0]))


def _in_folder(folder: Path, *, strict: bool) -> Iterator[CassetteRef]:
    try:
        names = find_names(folder)
    except OSError as exc:
        raise ConfigError(f"{folder}: cannot be listed ({exc.strerror})") from exc
    store = FileStore(folder)
    for name in names:
        files = files_of(folder, name)
        if not files or any(_is_cassette(file, strict=strict) for file in files):
            yield _shown_by_file(CassetteRef.of(store, name))


def _of_file(path: Path, *, strict: bool) -> Iterator[Target]:
    if path.parent.suffix == ASSETS:
        yield BodyFile(str(path), path.stat().st_size, "")
    elif _is_cassette(path, strict=strict):
        yield CassetteRef(FileStore(path.parent), path.stem, str(path))


def looks_like_cassette(suffix: str, text: bytes) -> bool:
    """Whether a text in a file with this suffix has the fields of a cassette."""
    return all(field.search(text) for field in _CASSETTE_FIELDS[SERIALIZER_BY_SUFFIX[suffix]])


def _is_cassette(path: Path, *, strict: bool) -> bool:
    try:
        if path.suffix in SERIALIZER_BY_SUFFIX and looks_like_cassette(
            path.suffix, path.read_bytes()
        ):
            return True
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc
    if strict:
        raise ConfigError(f"{path} is no cassette")
    terminal.print_error(f"{path} is no cassette: passed over")
    return False
