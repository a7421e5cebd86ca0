"""`tapeway doctor`: what differs between two takes of one run, and the rules that make up for it."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import click

from tapeway.cli import diagnosis
from tapeway.cli.around import FREE, run_around
from tapeway.cli.command_line import Around, command_of
from tapeway.cli.diagnosis import Diagnosis
from tapeway.cli.options import settings_options
from tapeway.cli.places import Place, place
from tapeway.cli.preparation import prepare
from tapeway.core.http.routing import adopt
from tapeway.core.matching.rules import Rules, RulesFault, in_meta, merged, of_meta
from tapeway.core.misses.comparison import compare
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.errors import CassetteCorrupt
from tapeway.ports import Restatable
from tapeway.settings.options import Settings, resolve_routes
from tapeway.settings.sources import flag_of

_UNEXPLAINED = 1
_TWICE = {"mode": "record", "store": "memory:", "admin_listen": "off"}
_NOTHING = StoredCassette(CassetteHead("", ""))


@click.command(cls=Around)
@click.argument("cassettes", nargs=-1, metavar="[FIRST SECOND | -- COMMAND…]")
@click.option("--write", is_flag=True, help="Add the rules to FIRST's own.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How to tell what was found. [text]",
)
@settings_options(but="workers")
@click.pass_context
def doctor(
    context: click.Context,
    /,
    *,
    cassettes: tuple[str, ...],
    write: bool,
    shape: Literal["text", "json"],
    **flags: object,
) -> int:
    """Find out what keeps one run from replaying another, and the rules to add.

    \b
        tapeway doctor before after
        tapeway doctor --route openai=http://127.0.0.1:9000 -- pytest -q

    Two cassettes, by name or by file, are taken for two takes of one run. A command is run twice
    against a proxy that records in memory, with the variables that tapeway env prints. Exit code
    0: they match, with the rules that are shown; 1: something stays unexplained, or the command
    failed.
    """
    command = command_of(context)
    if command is None:
        if len(cassettes) != 2:
            raise click.UsageError("give two cassettes, or a command behind --.", context)
        settings = prepare(flags)
        found = [asyncio.run(_of_cassettes(settings, *cassettes, write=write))]
        failed = False
    else:
        _check_twice(context, cassettes, flags, write=write)
        settings = prepare({**flags, **_TWICE, "listen": flags["listen"] or FREE["listen"]})
        found, failed = _of_command(settings, command)
    show = diagnosis.as_json if shape == "json" else diagnosis.as_text
    if found:
        click.echo(show(found, settings.rules))
    if write and diagnosis.added(found):
        click.echo(f"Added to the rules of {cassettes[0]}.", err=True)
    return 0 if diagnosis.explained(found) and not failed else _UNEXPLAINED


def _check_twice(
    context: click.Context,
    cassettes: Sequence[str],
    flags: Mapping[str, object],
    *,
    write: bool,
) -> None:
    if cassettes:
        raise click.UsageError("give two cassettes or a command, not both.", context)
    given = [flag_of(option) for option in _TWICE if flags[option] is not None]
    if write:
        given.append("--write")
    if given:
        raise click.UsageError(
            f"a command is recorded twice in memory: leave out {', '.join(given)}.", context
        )


async def _of_cassettes(settings: Settings, first: str, second: str, *, write: bool) -> Diagnosis:
    table = resolve_routes(settings)
    async with place(first, settings.store) as one, place(second, settings.store) as other:
        left = await one.load(writable=write)
        rules = merged(_rules(left, one.shown), settings.rules)
        comparison = compare(adopt(left, table), adopt(await other.load(), table), rules)
        if write and comparison.rules:
            meta = in_meta(left.head.meta, merged(rules, comparison.rules))
            await _restated(one, replace(left, head=replace(left.head, meta=meta)))
        return Diagnosis(one.shown, other.shown, rules, comparison)


async def _restated(one: Place, stored: StoredCassette) -> None:
    if isinstance(one.store, Restatable):
        # What others have recorded meanwhile stays.
        await one.store.restate(one.name, stored.head)
    else:
        await one.store.save(one.name, stored)


def _rules(stored: StoredCassette, shown: str) -> Rules:
    try:
        return of_meta(stored.head.meta)
    except RulesFault as exc:
        raise CassetteCorrupt(f"cassette {shown}: meta.{exc}") from exc


def _of_command(settings: Settings, command: Sequence[str]) -> tuple[list[Diagnosis], bool]:
    """How two runs compare, and whether one of them went wrong."""
    takes: list[Mapping[str, StoredCassette]] = []
    faults: list[str] = []
    for turn in ("first", "second"):
        # What the command prints is not to stand in the midst of what is found.
        finished = run_around(settings, command, os.environ, stdout=sys.stderr)
        takes.append(finished.cassettes)
        if finished.code:
            faults.append(f"The command ended with code {finished.code} in its {turn} run.")
        faults += finished.failures
    first, second = takes
    if not first and not second:
        faults.append("Nothing was recorded: no call of the command came to the proxy.")
    for fault in faults:
        click.echo(fault, err=True)
    found = [
        Diagnosis(
            f"{name} (first run)",
            f"{name} (second run)",
            settings.rules,
            compare(first.get(name, _NOTHING), second.get(name, _NOTHING), settings.rules),
        )
        for name in sorted({*first, *second})
    ]
    return found, bool(faults)
