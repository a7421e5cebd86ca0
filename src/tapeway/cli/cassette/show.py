"""`tapeway cassette show`: print the interactions or the conversations of a cassette."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import click

from tapeway.body_files import with_body_in_memory
from tapeway.cli import terminal
from tapeway.cli.cassette import render
from tapeway.cli.cassette_arguments import open_cassette
from tapeway.cli.options import OutputFormat, cassette_command
from tapeway.conversations.model import document
from tapeway.conversations.transcript import Transcript, read_conversations
from tapeway.conversations.turns import CassetteTurns
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.errors import CassetteCorrupt, ConfigError, TapewayError
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import encode
from tapeway.formats.yaml.writer import dump as yaml
from tapeway.inspection.pairing import without_varying
from tapeway.inspection.session import session
from tapeway.paging import CassetteRef
from tapeway.settings.options import Settings
from tapeway.settings.price_file import load_prices


@cassette_command("prices", every_error=False)
@click.argument("name", metavar="NAME|FILE|STORE#NAME")
@click.argument("index", type=click.IntRange(min=0), required=False)
@click.option("--messages", is_flag=True, help="Show the conversations of the LLM calls.")
@click.option(
    "--textconv", is_flag=True, help="Print what git compares line by line, if set as its textconv."
)
def show(
    name: str,
    index: int | None,
    messages: bool,
    textconv: bool,
    output_format: OutputFormat,
    settings: Settings,
) -> int:
    """Show the interactions or the conversations of a cassette.

    Prints a line for each interaction, or with an INDEX the whole interaction.

    \b
        tapeway cassette show smoke
        tapeway cassette show smoke 3
        tapeway cassette show smoke --messages

    With an INDEX, --messages shows only the messages that first appeared in that call.

    --textconv prints each request and the assembled response as YAML, without identifiers, times and
    padding; a file that is no cassette is printed unchanged.

    After the messages come the turns: the tokens and the price of each call, and how far the prompt
    repeats the prompt before. A service can serve the repeated part from its cache.

    \b
    Exit codes:
        0  shown
        2  the cassette cannot be read, or there is no such cassette or interaction
    """
    if textconv:
        if index is not None or messages or output_format == "json":
            raise click.UsageError("--textconv prints a whole cassette, and takes no other option.")
        asyncio.run(_print_said(name, settings))
    else:
        asyncio.run(_show(name, settings, index, output_format, messages=messages))
    return terminal.DONE


async def _print_said(file: str, settings: Settings) -> None:
    """Print what a cassette's recordings say. Raises ConfigError, StoreError where there is no file."""
    try:
        async with open_cassette(file, settings.store) as cassette:
            text = "---\n".join(
                [yaml(without_varying(item)) async for item in (await cassette.walk()).items]
            )
    except TapewayError as exc:
        # git stops where its textconv fails, at the first revision with such a file.
        text = _as_it_is(file, exc)
    click.echo(terminal.block(text), nl=False)


def _as_it_is(file: str, trouble: TapewayError) -> str:
    try:
        return Path(file).read_bytes().decode("utf-8", "replace")
    except OSError:
        # It is no file: the name of a cassette that is not there, or a store that cannot be opened.
        raise trouble from None


async def _show(
    name: str, settings: Settings, index: int | None, output_format: OutputFormat, *, messages: bool
) -> None:
    as_json = output_format == "json"
    async with open_cassette(name, settings.store) as cassette:
        if messages:
            prices = load_prices(settings.prices)
            stored = await _stored(cassette, index)
            conversations = await read_conversations(stored, prices)
            _print_messages(*conversations, index, await _sessions(stored, index), as_json=as_json)
        elif index is not None:
            item = await cassette.get(index)
            if item is None:
                raise _no_interaction(cassette, index)
            click.echo(_document(cassette, item).decode() if as_json else render.whole(item))
        elif as_json:
            await _print_list(cassette, (await cassette.walk()).items)
        else:
            async for stored_item in (await cassette.walk()).items:
                click.echo(render.summary_in_colours(stored_item))


async def _stored(cassette: CassetteRef, index: int | None) -> StoredCassette:
    stored = await cassette.load()
    if index is not None and index not in [
        interaction.index for interaction in stored.interactions
    ]:
        raise _no_interaction(cassette, index)
    return stored


async def _sessions(stored: StoredCassette, index: int | None) -> dict[int, dict[str, Json]]:
    """The WebSocket sessions by index."""
    session_of: dict[int, dict[str, Json]] = {}
    for interaction in stored.interactions:
        if interaction.index != index and index is not None:
            continue
        if not isinstance(interaction, Interaction) or interaction.request.kind != "websocket":
            continue
        response = await with_body_in_memory(interaction.response)
        if (read := session(replace(interaction, response=response))) is not None:
            session_of[interaction.index] = read
    return session_of


def _print_messages(
    transcript: Transcript,
    turns: CassetteTurns,
    index: int | None,
    sessions: Mapping[int, dict[str, Json]],
    *,
    as_json: bool,
) -> None:
    messages = [message for message in transcript.messages if index in (None, message.interaction)]
    left_out = [
        omission for omission in transcript.left_out if index in (None, omission.interaction)
    ]
    of_index = [turn for turn in turns.turns if index in (None, turn.interaction)]
    shown = CassetteTurns(tuple(of_index))
    if as_json:
        lists: dict[str, Json] = {
            "messages": [document(message) for message in messages],
            "left_out": [asdict(omission) for omission in left_out],
            "sessions": [{"interaction": at, **recorded} for at, recorded in sessions.items()],
            "turns": [turn.document for turn in shown.turns],
            "sums": shown.sums,
            "largest_results": [asdict(result) for result in shown.largest_results],
        }
        click.echo(dump(lists, indent=True).decode())
        return
    if messages:
        click.echo(render.conversations(messages))
    for at, each_session in sessions.items():
        click.echo(render.session(at, each_session))
    if shown.turns:
        click.echo()
        for line in render.turns(shown):
            click.echo(line)
    for omission in left_out:
        terminal.print_error(f"interaction {omission.interaction} is left out: {omission.reason}")


async def _print_list(cassette: CassetteRef, items: AsyncIterator[AnyInteraction]) -> None:
    # One after the other: a list may have a million interactions.
    before = "[\n  "
    async for item in items:
        text = _document(cassette, item).decode()
        click.echo(before + text.replace("\n", "\n  "), nl=False)
        before = ",\n  "
    click.echo("[]" if before[0] == "[" else "\n]")


def _document(cassette: CassetteRef, item: AnyInteraction) -> bytes:
    try:
        fields = encode(item)
    except FormatFault as fault:
        raise CassetteCorrupt(f"cassette {cassette.shown} cannot be shown: {fault}") from fault
    return dump({"index": item.index, **fields, **{"index": item.index}}, indent=True)


def _no_interaction(cassette: CassetteRef, index: int) -> ConfigError:
    return ConfigError(f"cassette {cassette.shown} has no interaction {index}")
