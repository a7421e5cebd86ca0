"""`tapeway doctor`: what differs between two takes of one run, and the rules that make up for it.

What comparing two takes found, as people read it and as scripts do.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import click

from tapeway.cli.command_classes import Around, command_of
from tapeway.cli.options import prepare, settings_options
from tapeway.cli.places import CassettePlace, place
from tapeway.cli.run import FREE, run_around
from tapeway.core.http.routing import assign_routes
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import (
    NO_RULES,
    Rules,
    RulesFault,
    merged_rules,
    meta_with_rules,
    rules_document,
    rules_of_meta,
)
from tapeway.core.misses.comparison import CallPair, Comparison, Differing, compare
from tapeway.core.misses.differences import Difference, shown
from tapeway.core.misses.nearest import compared
from tapeway.core.misses.suggestion import rules_text
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.text import escape_surrogates
from tapeway.errors import CassetteCorrupt
from tapeway.settings.options import Settings, resolve_routes
from tapeway.settings.sources import flag_of

_MOST_LISTED = 20
"""Calls of one kind that are named; a person looks at a few."""
_UNEXPLAINED = 1
_TWICE = {"mode": "record", "store": "memory:", "admin_listen": "off"}
_NOTHING = StoredCassette(CassetteHead("", ""))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Two takes by name, the rules in force for them, and how they compare."""

    first: str
    second: str
    rules: Rules
    comparison: Comparison

    def left(self, pair: CallPair) -> tuple[Difference, ...]:
        """What still differs between two calls under all rules."""
        rules = merged_rules(self.rules, self.comparison.rules)
        return compared(pair.first.request, pair.second.request, rules)


def added(found: Sequence[Diagnosis]) -> Rules:
    """The rules to add for all of them."""
    rules = NO_RULES
    for each in found:
        rules = merged_rules(rules, each.comparison.rules)
    return rules


def explained(found: Sequence[Diagnosis]) -> bool:
    """Whether, the rules added, every run like the second would be answered from the first."""
    return all(each.comparison.explained for each in found)


def pasted(rules: Rules, present: Rules) -> str:
    """The lines to stand below `[rules]`, where those of the same name stood before."""
    both = merged_rules(present, rules)
    return rules_text(Rules(**{key: getattr(both, key) for key in rules_document(rules)}))


def as_json(found: Sequence[Diagnosis], present: Rules) -> str:
    """One document about all of them."""
    rules = added(found)
    document: dict[str, Json] = {
        "explained": explained(found),
        "rules": rules_document(rules),
        "toml": pasted(rules, present),
        "cassettes": [_document(each) for each in found],
    }
    return dump(document).decode()


def as_text(found: Sequence[Diagnosis], present: Rules) -> str:
    """What a person needs to know, the rules ready to be pasted."""
    paragraphs = ["\n".join(_told(each)) for each in found]
    rules = added(found)
    if rules:
        paragraphs.append("Add under [rules] in tapeway.toml, in place of lines of the same name:")
        paragraphs.append(pasted(rules, present))
    if rules.ignore:
        paragraphs.append("What is ignored matches whatever it says: keep what a test is about.")
    if found and not rules and explained(found):
        paragraphs.append("No rule is needed.")
    return "\n\n".join(paragraphs)


def _told(found: Diagnosis) -> Iterator[str]:
    comparison = found.comparison
    pairs = len(comparison.unexplained)
    yield f"{found.first} and {found.second}: {_calls(comparison.equal)} equal"
    for differing in comparison.paths:
        yield f"  {_path(differing)} differs in {_calls(differing.calls)}{_reason(differing)}"
        yield from _example(differing.example, "    ")
    if pairs:
        yield f"No rule explains {_calls(pairs)}:"
        for pair in comparison.unexplained[:_MOST_LISTED]:
            yield f"  {_call(pair.first)} and {_call(pair.second)}"
            for each in found.left(pair)[:_MOST_LISTED]:
                yield f"    {escape_surrogates(each.path)}"
                yield from _example(each, "      ")
    for name, calls in (
        (found.first, comparison.only_first),
        (found.second, comparison.only_second),
    ):
        if calls:
            yield f"{_calls(len(calls))} only in {name}:"
            yield from (f"  {_call(each)}" for each in calls[:_MOST_LISTED])


def _path(differing: Differing) -> str:
    return escape_surrogates(differing.path)


def _reason(differing: Differing) -> str:
    return ", which repeats what an answer said" if differing.echoed else ""


def _calls(count: int) -> str:
    return f"{count} call{'' if count == 1 else 's'}"


def _call(interaction: Interaction) -> str:
    request = interaction.request
    return f"#{interaction.index} {escape_surrogates(request.method)} {escape_surrogates(request.target)}"


def _example(difference: Difference, indent: str) -> Iterator[str]:
    said = shown(difference)
    for name, side in (("first", "recorded"), ("second", "requested")):
        value = dump(said[side]).decode() if side in said else "nothing"
        yield f"{indent}{name}: {value}"


def _document(found: Diagnosis) -> dict[str, Json]:
    comparison = found.comparison
    return {
        "first": found.first,
        "second": found.second,
        "equal": comparison.equal,
        "explained": comparison.explained,
        "differences": [
            {**shown(each.example), "path": _path(each), "calls": each.calls, "echoed": each.echoed}
            for each in comparison.paths
        ],
        "rules": rules_document(comparison.rules),
        "unexplained": [
            {
                "first": _named(pair.first),
                "second": _named(pair.second),
                "differences": [shown(each) for each in found.left(pair)],
            }
            for pair in comparison.unexplained
        ],
        "only_first": [_named(each) for each in comparison.only_first],
        "only_second": [_named(each) for each in comparison.only_second],
    }


def _named(interaction: Interaction) -> dict[str, Json]:
    request = interaction.request
    return {
        "index": interaction.index,
        "method": escape_surrogates(request.method),
        "path": escape_surrogates(request.target),
    }


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
    show = as_json if shape == "json" else as_text
    if found:
        click.echo(show(found, settings.rules))
    if write and added(found):
        click.echo(f"Added to the rules of {cassettes[0]}.", err=True)
    return 0 if explained(found) and not failed else _UNEXPLAINED


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
        rules = merged_rules(_rules(left, one.shown), settings.rules)
        comparison = compare(
            assign_routes(left, table), assign_routes(await other.load(), table), rules
        )
        if write and comparison.rules:
            meta = meta_with_rules(left.head.meta, merged_rules(rules, comparison.rules))
            await _restated(one, replace(left, head=replace(left.head, meta=meta)))
        return Diagnosis(one.shown, other.shown, rules, comparison)


async def _restated(one: CassettePlace, stored: StoredCassette) -> None:
    if (editor := one.store.capabilities.head_editor) is not None:
        # What others have recorded meanwhile stays.
        await editor.restate(one.name, stored.head)
    else:
        await one.store.save(one.name, stored)


def _rules(stored: StoredCassette, shown: str) -> Rules:
    try:
        return rules_of_meta(stored.head.meta)
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
