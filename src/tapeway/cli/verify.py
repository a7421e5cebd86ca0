"""`tapeway cassette verify`: is all of a cassette there, and what it says?"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import plain_text
from tapeway.cli.options import settings_options
from tapeway.cli.places import place
from tapeway.cli.sources import load
from tapeway.cli.verification import Problem, large_bodies, problems
from tapeway.core.json_text import Json, dump
from tapeway.errors import TapewayError
from tapeway.stores.opening import open_store

_WRONG, _UNREADABLE = 1, 2


@dataclass(frozen=True, slots=True)
class _Verified:
    """A cassette, and what was found; `error` says why it could not be read."""

    name: str
    interactions: int = 0
    bodies: int = 0
    problems: tuple[Problem, ...] = ()
    error: str | None = None


@click.command()
@click.argument("names", metavar="[NAME|FILE]...", nargs=-1)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config")
def verify(names: tuple[str, ...], form: Literal["text", "json"], **flags: object) -> int:
    """Read all of the cassettes named, or of the store's, and check what they say.

    \b
    Exit: 0 all is well, 1 something is wrong, 2 a cassette cannot be read.

    Checked are that large bodies and assets are there and have the digests they are named by, that
    the keys are those of the requests, and that each interaction is the same when it is written and
    read again.
    """
    settings = load(flags, os.environ, Path()).settings
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
    return [await _look(name, store) async for name in _named(names, store)]


async def _named(names: Sequence[str], store: str) -> AsyncIterator[str]:
    if names:
        for name in names:
            yield name
        return
    opened = open_store(store)
    await opened.open()
    try:
        for name in await opened.names():
            yield name
    finally:
        await opened.close()


async def _look(name: str, store: str) -> _Verified:
    try:
        async with place(name, store) as found:
            stored = await found.load()
            told = await asyncio.to_thread(lambda: tuple(problems(stored)))
    except TapewayError as exc:
        return _Verified(name, error=exc.message)
    bodies = {file.digest for each in stored.interactions for file in large_bodies(each)}
    return _Verified(name, len(stored.interactions), len(bodies), told)


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
        click.echo(f"{name}: #{each.index}: {plain_text.line(each.reason)}")
    if not found.problems:
        bodies = _bodies(found.bodies)
        click.echo(
            f"{name}: {plain_text.counted(found.interactions, 'interaction')}{bodies}, whole"
        )


def _bodies(count: int) -> str:
    return f", {count} large bod{'y' if count == 1 else 'ies'}" if count else ""
