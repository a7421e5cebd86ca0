"""`tapeway cassette ls`: list the cassettes of a store."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import existing, opened
from tapeway.cli.options import OutputFormat, cassette_command
from tapeway.cli.transfer.batches import is_unfinished
from tapeway.core.json_text import Json, dump
from tapeway.errors import StoreAway, StoreError
from tapeway.paging import CassetteRef
from tapeway.ports import CassetteStore
from tapeway.settings.options import Settings
from tapeway.stores.opening import open_store


@dataclass(frozen=True, slots=True)
class ListedCassette:
    """`unfinished` if a conversion into it was interrupted, `error` if it cannot be read."""

    name: str
    size: int | None
    modified_at: str | None
    interactions: int | None = None
    unfinished: bool = False
    error: str | None = None


@cassette_command()
def ls(output_format: OutputFormat, settings: Settings) -> int:
    """List the cassettes of a store.

    Each line shows name, number of interactions, size and time of the last change; the last line sums
    them up.

    \b
        tapeway cassette ls
        tapeway cassette ls --store sqlite:./cassettes.db

    \b
    Exit codes:
        0  all could be read
        2  one could not, or there is no such store; standard error says why
    """
    rows = asyncio.run(listed(existing(open_store(settings.store))))
    if output_format == "json":
        click.echo(dump([as_document(row) for row in rows], indent=True).decode())
    else:
        _print(rows)
    return terminal.NOT_DONE if any(row.error for row in rows) else terminal.DONE


async def listed(store: CassetteStore) -> list[ListedCassette]:
    """The cassettes of a store. Raises ConfigError if it cannot be opened, StoreAway."""
    async with opened(store):
        return [await _read(store, name) for name in await store.names()]


async def _read(store: CassetteStore, name: str) -> ListedCassette:
    stat = await store.stat(name)
    size, modified_at = (None, None) if stat is None else (stat.size_bytes, stat.modified_at)
    try:
        walk = await CassetteRef.of(store, name).find()
    except StoreAway:
        raise
    except StoreError as exc:
        return ListedCassette(name, size, modified_at, error=exc.message)
    finally:
        await store.release(name)
    if walk is None:
        return ListedCassette(name, size, modified_at, interactions=0)
    unfinished = is_unfinished(walk.head)
    return ListedCassette(name, size, modified_at, walk.count, unfinished=unfinished)


def as_document(cassette: ListedCassette) -> dict[str, Json]:
    """A cassette of the list as JSON; `size_bytes` and `modified_at` are null without a file."""
    return {
        "name": cassette.name,
        "interactions": cassette.interactions,
        "size_bytes": cassette.size,
        "modified_at": cassette.modified_at,
        "unfinished": cassette.unfinished,
        "error": cassette.error,
    }


def _print(cassettes: Sequence[ListedCassette]) -> None:
    width = max([len(cassette.name) for cassette in cassettes], default=0)
    if cassettes:
        heading = _row(width, "cassette", "interactions", "size", "last change")
        click.echo(terminal.styled(heading, "heading"))
    for cassette in cassettes:
        count = "?" if cassette.interactions is None else str(cassette.interactions)
        size = "" if cassette.size is None else terminal.size(cassette.size)
        modified_at = re.sub(r"\.\d+", "", cassette.modified_at or "")
        row = _row(width, cassette.name, count, size, modified_at)
        note = f"  {terminal.styled('unfinished', 'note')}" if cassette.unfinished else ""
        click.echo(f"{terminal.styled(row, 'bad') if cassette.error else row}{note}")
        if cassette.error:
            terminal.print_error(cassette.error)
    click.echo(_totals(cassettes))


def _row(width: int, name: str, count: str, size: str, modified_at: str) -> str:
    return f"{name:<{max(width, 8)}}  {count:>12}  {size:>10}  {modified_at}".rstrip()


def _totals(cassettes: Sequence[ListedCassette]) -> str:
    interactions = sum([cassette.interactions or 0 for cassette in cassettes])
    sizes = [cassette.size for cassette in cassettes if cassette.size is not None]
    parts = [
        terminal.counted(len(cassettes), "cassette"),
        terminal.counted(interactions, "interaction"),
        terminal.size(sum(sizes)) if sizes else "",
    ]
    unread = sum([cassette.error is not None for cassette in cassettes])
    return ", ".join(filter(None, parts)) + (f", {unread} cannot be read" if unread else "")
