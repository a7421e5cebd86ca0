"""`tapeway cassette ls`: which cassettes there are."""

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import terminal
from tapeway.cli.options import settings_options
from tapeway.cli.places import opened
from tapeway.cli.transfer.batches import is_marked
from tapeway.core.json_text import Json, dump
from tapeway.errors import StoreAway, StoreError
from tapeway.paging import walk_cassette
from tapeway.ports import CassetteStore
from tapeway.settings.sources import load_settings
from tapeway.stores.opening import open_store

_UNREADABLE = 2


@dataclass(frozen=True, slots=True)
class _Listed:
    """A cassette, and how many interactions it holds or why that cannot be told.

    One that is unfinished holds the beginning of what was to be converted into it.
    """

    name: str
    interactions: int | None
    size: int | None
    modified_at: str | None
    unfinished: bool = False
    error: str | None = None


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config")
def ls(form: Literal["text", "json"], **flags: object) -> int:
    """List the cassettes of a store: name, interactions, size, time of the last change.

    \b
    Exit: 0 all could be read, 2 one could not, which is named.
    """
    settings = load_settings(flags, os.environ, Path()).settings
    found = asyncio.run(_listed(open_store(settings.store)))
    if form == "json":
        click.echo(dump([_document(each) for each in found], indent=True).decode())
    else:
        _print(found)
    return _UNREADABLE if any(each.error for each in found) else 0


async def _listed(store: CassetteStore) -> list[_Listed]:
    async with opened(store):
        return [await _look(store, name) for name in await store.names()]


async def _look(store: CassetteStore, name: str) -> _Listed:
    stat = await store.stat(name)
    size, modified_at = (None, None) if stat is None else (stat.size_bytes, stat.modified_at)
    try:
        found = await walk_cassette(store, name)
    except StoreAway:
        raise
    except StoreError as exc:
        return _Listed(name, None, size, modified_at, error=exc.message)
    finally:
        await store.release(name)
    if found is None:
        return _Listed(name, 0, size, modified_at)
    return _Listed(name, found.count, size, modified_at, unfinished=is_marked(found.head))


def _document(listed: _Listed) -> Json:
    return {
        "name": listed.name,
        "interactions": listed.interactions,
        "size_bytes": listed.size,
        "modified_at": listed.modified_at,
        "unfinished": listed.unfinished,
        "error": listed.error,
    }


def _print(found: list[_Listed]) -> None:
    width = max([len(each.name) for each in found], default=0)
    for each in found:
        count = "?" if each.interactions is None else str(each.interactions)
        size = "" if each.size is None else terminal.size(each.size)
        note = "  unfinished" if each.unfinished else ""
        modified_at = re.sub(r"\.\d+", "", each.modified_at or "")
        shown = f"{each.name:<{width}}  {count:>6}  {size:>10}  {modified_at}{note}"
        click.echo(shown.rstrip())
        if each.error:
            click.echo(f"tapeway: {terminal.line(each.error)}", err=True)
