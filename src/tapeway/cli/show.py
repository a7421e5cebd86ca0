"""`tapeway cassette show`: what a cassette holds."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import exhibits, plain_text
from tapeway.cli.options import settings_options
from tapeway.cli.places import place
from tapeway.cli.sources import load
from tapeway.core.json_text import Json, dump
from tapeway.core.model import ForeignInteraction, Interaction, StoredCassette
from tapeway.errors import CassetteCorrupt, ConfigError
from tapeway.formats import native
from tapeway.formats.fault import FormatFault
from tapeway.providers.conversation import Transcript
from tapeway.providers.message import document
from tapeway.transcripts import read_transcript

Held = Interaction | ForeignInteraction


@click.command()
@click.argument("name", metavar="NAME|FILE")
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
    settings = load(flags, os.environ, Path()).settings
    stored, said = asyncio.run(_read(name, settings.store, messages=messages))
    chosen = [each for each in stored.interactions if index in (None, each.index)]
    if index is not None and not chosen:
        raise ConfigError(f"cassette {name} has no interaction {index}")
    if said is not None:
        _tell(said, index, form)
    elif form == "json":
        documents = [_document(name, each) for each in chosen]
        shown: Json = [*documents] if index is None else documents[0]
        click.echo(dump(shown, indent=True).decode())
    elif index is None:
        for each in chosen:
            click.echo(exhibits.summary(each))
    else:
        click.echo(exhibits.whole(chosen[0]))
    return 0


async def _read(
    name: str, store: str, *, messages: bool
) -> tuple[StoredCassette, Transcript | None]:
    async with place(name, store) as found:
        stored = await found.load()
        return stored, await read_transcript(stored) if messages else None


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
        click.echo(exhibits.conversations(chosen))
    for each in left_out:
        reason = plain_text.line(each.reason)
        click.echo(f"tapeway: interaction {each.interaction} is left out: {reason}", err=True)


def _document(name: str, item: Held) -> dict[str, Json]:
    try:
        written = native.encode(item)
    except FormatFault as fault:
        raise CassetteCorrupt(f"cassette {name} cannot be shown: {fault}") from fault
    return {"index": item.index, **written, **{"index": item.index}}
