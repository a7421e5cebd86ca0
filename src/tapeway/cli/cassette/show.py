"""`tapeway cassette show`: what a cassette holds."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import terminal
from tapeway.cli.cassette import render
from tapeway.cli.options import settings_options
from tapeway.cli.places import CassettePlace, place
from tapeway.conversations.model import document
from tapeway.conversations.transcript import Transcript, read_transcript
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import CassetteCorrupt, ConfigError
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import encode
from tapeway.settings.sources import load_settings


@click.command()
@click.argument("name", metavar="NAME|FILE|STORE#NAME")
@click.argument("index", type=click.IntRange(min=0), required=False)
@click.option("--messages", is_flag=True, help="Show the LLM calls as what was said.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config")
def show(
    name: str, index: int | None, messages: bool, form: Literal["text", "json"], **flags: object
) -> int:
    """Show what a cassette holds: a line for each interaction, or all of one by its index.

    \b
        tapeway cassette show smoke
        tapeway cassette show smoke 3
        tapeway cassette show smoke --messages

    With an index, --messages shows what that call said first.
    """
    settings = load_settings(flags, os.environ, Path()).settings
    asyncio.run(_show(name, settings.store, index, form, messages=messages))
    return 0


async def _show(name: str, store: str, index: int | None, form: str, *, messages: bool) -> None:
    async with place(name, store) as found:
        if messages:
            said = await _said(found, index)
            _tell(said, index, form)
        elif index is None:
            items = (await found.walk()).items
            await (_list(items, found) if form == "json" else _sum_up(items))
        else:
            item = await _one(found, index)
            one = dump(_document(found, item), indent=True).decode() if form == "json" else None
            click.echo(render.whole(item) if one is None else one)


async def _said(found: CassettePlace, index: int | None) -> Transcript:
    stored = await found.load()
    if index is not None and index not in [each.index for each in stored.interactions]:
        raise _nothing_there(found, index)
    return await read_transcript(stored)


async def _one(found: CassettePlace, index: int) -> AnyInteraction:
    item = await found.get(index)
    if item is None:
        raise _nothing_there(found, index)
    return item


async def _sum_up(items: AsyncIterator[AnyInteraction]) -> None:
    async for each in items:
        click.echo(render.summary(each))


async def _list(items: AsyncIterator[AnyInteraction], found: CassettePlace) -> None:
    # What was shown is let go: a list may have a million interactions.
    before = "[\n  "
    async for each in items:
        document = dump(_document(found, each), indent=True).decode()
        click.echo(before + document.replace("\n", "\n  "), nl=False)
        before = ",\n  "
    click.echo("[]" if before[0] == "[" else "\n]")


def _nothing_there(found: CassettePlace, index: int) -> ConfigError:
    return ConfigError(f"cassette {found.shown} has no interaction {index}")


def _tell(said: Transcript, index: int | None, form: str) -> None:
    chosen = [each for each in said.messages if index in (None, each.interaction)]
    left_out = [each for each in said.left_out if index in (None, each.interaction)]
    if form == "json":
        unread: list[Json] = [
            {"interaction": each.interaction, "reason": each.reason} for each in left_out
        ]
        told: list[Json] = [document(each) for each in chosen]
        click.echo(dump({"messages": told, "left_out": unread}, indent=True).decode())
        return
    if chosen:
        click.echo(render.conversations(chosen))
    for each in left_out:
        reason = terminal.line(each.reason)
        click.echo(f"tapeway: interaction {each.interaction} is left out: {reason}", err=True)


def _document(found: CassettePlace, item: AnyInteraction) -> dict[str, Json]:
    try:
        written = encode(item)
    except FormatFault as fault:
        raise CassetteCorrupt(f"cassette {found.shown} cannot be shown: {fault}") from fault
    return {"index": item.index, **written, **{"index": item.index}}
