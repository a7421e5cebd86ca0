"""`tapeway cassette verify`: is all of a cassette there, and what it says?

Whether all of a cassette is what it says: large bodies, keys, and a way there and back.

Whether a store finds each interaction where its request says, and nothing else there.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click

from tapeway.body_files import pieces
from tapeway.cli import terminal
from tapeway.cli.options import settings_options
from tapeway.cli.places import CassettePlace, find, is_address, opened, place
from tapeway.cli.terminal import progress
from tapeway.cli.transfer.batches import is_marked
from tapeway.core.agenttape import key
from tapeway.core.cassette.index import index_keys
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import Rules, rules_of_meta
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import (
    AnyInteraction,
    ForeignInteraction,
    Interaction,
    exchange_of,
)
from tapeway.core.model.messages import BodyFile, Request, Response
from tapeway.errors import StoreAway, StoreError, TapewayError
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import encode, load, write
from tapeway.paging import large_bodies
from tapeway.ports import CassetteStore, RecordingIndex
from tapeway.settings.sources import load_settings
from tapeway.stores.opening import open_store

_WRONG, _UNREADABLE = 1, 2
_UNFINISHED = "a conversion into it broke off: run that again, or remove it"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an interaction, by its index, or with all of a cassette."""

    index: int | None
    reason: str


class Keys:
    """Goes along with a cassette, in memory for the keys of those that have not gone by yet."""

    def __init__(self, store: RecordingIndex, name: str, rules: Rules) -> None:
        self._store = store
        self._name = name
        self._rules = rules
        self._waiting: dict[bytes, set[int]] = {}

    async def problems(self, item: AnyInteraction) -> list[Problem]:
        """What is wrong with where this one is found. Raises StoreError."""
        exchange = exchange_of(item)
        if exchange is None:
            return []
        for digest in index_keys(exchange, self._rules):
            if digest not in self._waiting:
                found = await self._store.find(self._name, [digest])
                self._waiting[digest] = {each.item.index for each in found}
            if item.index not in self._waiting[digest]:
                return [Problem(item.index, "the store does not find it by its request")]
            self._waiting[digest].remove(item.index)
            if not self._waiting[digest]:
                del self._waiting[digest]
        return []

    def left(self) -> list[Problem]:
        """Those that were found under a key which is not theirs, once all have gone by."""
        left = sorted({index for indexes in self._waiting.values() for index in indexes})
        return [
            Problem(index, "the store finds it by a request it does not have") for index in left
        ]


class Verification:
    """Looks at the interactions of a cassette as they go by; `bodies` are the large ones among them.

    In a store with an index they have to be found there where their requests say.
    """

    def __init__(self, store: CassetteStore, name: str, rules: Rules) -> None:
        self.interactions = 0
        self.bodies: set[str] = set()
        index = store.capabilities.shared
        self._keys = None if index is None else Keys(index, name, rules)

    async def problems(self, item: AnyInteraction) -> list[Problem]:
        """All there are with this one. A large body is read, once. Raises StoreError."""
        self.interactions += 1
        found = [*self._of_files(item), *_of_item(item)]
        misplaced = await self._keys.problems(item) if self._keys is not None else []
        return [*[Problem(item.index, each) for each in found], *misplaced]

    def left(self) -> list[Problem]:
        """What is known only at the end."""
        return self._keys.left() if self._keys is not None else []

    def _of_files(self, item: AnyInteraction) -> Iterator[str]:
        for file in large_bodies(item):
            if file.digest not in self.bodies:
                self.bodies.add(file.digest)
                yield from _of_file(file)


def _of_item(item: AnyInteraction) -> Iterator[str]:
    if isinstance(item, Interaction):
        yield from _of_key(item)
    yield from _of_the_way_back(item)


def _of_file(file: BodyFile) -> Iterator[str]:
    try:
        for _ in pieces(file):
            pass
    except StoreError as exc:
        yield exc.message


def _of_key(item: Interaction) -> Iterator[str]:
    # Of another tool's recording, the key is that of a request nobody has seen.
    if item.stored_keys or not item.match_key:
        return
    made = key.http_key(item.request)
    if made and made != item.match_key:
        yield (
            "its match_key is not that of the request as it stands: tapeway takes its own from the "
            f"request, AgentTape's tools would look for {made}"
        )


def _of_the_way_back(item: AnyInteraction) -> Iterator[str]:
    try:
        written = write(_NO_HEAD, [encode(item)])
        found = load(written).interactions[0]
    except FormatFault as fault:
        yield f"it cannot be written and read again: {fault}"
        return
    if _plain(found) != _plain(item):
        yield "written and read again, it is another one"


def _plain(item: AnyInteraction) -> AnyInteraction:
    """The interaction without what only its place in a store gives it."""
    if isinstance(item, ForeignInteraction):
        document = {name: each for name, each in item.document.items() if name != "index"}
        return ForeignInteraction(0, document)
    request: Request = item.request
    response: Response = item.response
    if request.file is not None:
        request = replace(request, file=replace(request.file, path=""))
    if response.file is not None:
        response = replace(response, file=replace(response.file, path=""))
    return replace(item, index=0, request=request, response=response, match_key="")


_NO_HEAD = CassetteHead("", "")


@dataclass(frozen=True, slots=True)
class _Verified:
    """A cassette, and what was found; `error` says why it could not be read."""

    name: str
    interactions: int = 0
    bodies: int = 0
    problems: tuple[Problem, ...] = ()
    error: str | None = None


@click.command()
@click.argument("names", metavar="[NAME|FILE|STORE#NAME]...", nargs=-1)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config")
def verify(names: tuple[str, ...], form: Literal["text", "json"], **flags: object) -> int:
    """Read all of the cassettes named, or of the store's, and check what they say.

    \b
    Exit: 0 all is well, 1 something is wrong, 2 a cassette cannot be read.

    Checked are that large bodies and assets are there and have the digests they are named by, that
    the keys are those of the requests, that each interaction is the same when it is written and
    read again, and that a database finds each where it should. Without a name, the store itself is
    checked too, where it can be.
    """
    settings = load_settings(flags, os.environ, Path()).settings
    found = asyncio.run(_verified(names, settings.store))
    if form == "json":
        click.echo(dump([_document(each) for each in found], indent=True).decode())
    else:
        for each in found:
            _print(each)
    if any(each.error is not None for each in found):
        return _UNREADABLE
    return _WRONG if any(each.problems for each in found) else 0


async def _verified(names: Sequence[str], store: str) -> list[_Verified]:
    found = [await _look(name, store) async for name in _named(names, store)]
    return found if names else [*found, *await _beneath(open_store(store))]


async def _named(names: Sequence[str], store: str) -> AsyncIterator[str]:
    if names:
        for name in names:
            yield name
        return
    async with opened(open_store(store)) as found:
        for name in await found.names():
            yield name


async def _look(name: str, store: str) -> _Verified:
    # The address of a store may hold a password.
    shown = f"{name.partition(':')[0]}:…" if is_address(name) else name
    try:
        shown = find(name, store).shown
        async with place(name, store) as found:
            return await _gone_through(found)
    except StoreAway:
        raise
    except TapewayError as exc:
        return _Verified(shown, error=exc.message)


async def _gone_through(found: CassettePlace) -> _Verified:
    through = await found.walk()
    verification = Verification(found.store, found.name, rules_of_meta(through.head.meta))
    told: list[Problem] = []
    with progress(found.shown, through.count) as step:
        async for item in through.items:
            told += await verification.problems(item)
            step(1)
    told += verification.left()
    if is_marked(through.head):
        told.append(Problem(None, _UNFINISHED))
    elif verification.interactions != through.count:
        told.append(Problem(None, f"it says that it has {through.count} interactions"))
    return _Verified(found.shown, verification.interactions, len(verification.bodies), tuple(told))


async def _beneath(store: CassetteStore) -> list[_Verified]:
    if (checker := store.capabilities.checker) is None:
        return []
    async with opened(store):
        wrong = await checker.check()
        problems = tuple(Problem(None, each) for each in wrong)
        return [_Verified(store.url, problems=problems)] if wrong else []


def _document(found: _Verified) -> Json:
    told: list[Json] = [{"index": each.index, "reason": each.reason} for each in found.problems]
    return {
        "name": found.name,
        "interactions": found.interactions,
        "large_bodies": found.bodies,
        "problems": told,
        "error": found.error,
    }


def _print(found: _Verified) -> None:
    name = terminal.line(found.name)
    if found.error is not None:
        click.echo(f"tapeway: {terminal.line(found.error)}", err=True)
        return
    for each in found.problems:
        at = "" if each.index is None else f"#{each.index}: "
        click.echo(f"{name}: {at}{terminal.line(each.reason)}")
    if not found.problems:
        bodies = _bodies(found.bodies)
        click.echo(f"{name}: {terminal.counted(found.interactions, 'interaction')}{bodies}, whole")


def _bodies(count: int) -> str:
    return f", {count} large bod{'y' if count == 1 else 'ies'}" if count else ""
