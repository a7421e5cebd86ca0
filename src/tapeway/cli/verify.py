"""`tapeway cassette verify`: is all of a cassette there, and what it says?"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import plain_text
from tapeway.cli.keys import Problem
from tapeway.cli.options import settings_options
from tapeway.cli.places import Place, find, is_address, opened, place
from tapeway.cli.progress import progress
from tapeway.cli.verification import Verification
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import of_meta
from tapeway.errors import StoreAway, TapewayError
from tapeway.ports import CassetteStore, Checkable
from tapeway.settings.sources import load_settings
from tapeway.stores.opening import open_store
from tapeway.stores.unfinished import is_marked

_WRONG, _UNREADABLE = 1, 2
_UNFINISHED = "a conversion into it broke off: run that again, or remove it"


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


async def _gone_through(found: Place) -> _Verified:
    through = await found.walk()
    verification = Verification(found.store, found.name, of_meta(through.head.meta))
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
    if not isinstance(store, Checkable):
        return []
    async with opened(store):
        wrong = await store.check()
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
    name = plain_text.line(found.name)
    if found.error is not None:
        click.echo(f"tapeway: {plain_text.line(found.error)}", err=True)
        return
    for each in found.problems:
        at = "" if each.index is None else f"#{each.index}: "
        click.echo(f"{name}: {at}{plain_text.line(each.reason)}")
    if not found.problems:
        bodies = _bodies(found.bodies)
        click.echo(
            f"{name}: {plain_text.counted(found.interactions, 'interaction')}{bodies}, whole"
        )


def _bodies(count: int) -> str:
    return f", {count} large bod{'y' if count == 1 else 'ies'}" if count else ""
