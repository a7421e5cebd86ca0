"""`tapeway doctor`: find the differences between two runs, and matching rules for them.

The two runs are two cassettes, or two recordings of one command in memory.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import open_cassette
from tapeway.cli.command_classes import WrappingCommand, wrapped_command
from tapeway.cli.options import (
    OutputFormat,
    check_store_is_asked,
    command,
    format_option,
    prepare,
)
from tapeway.cli.run.moved_clock import environment_days_later
from tapeway.cli.run.wrapped_run import FREE_PORTS, WrappedRun, run_wrapped
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.http.routing import assign_routes
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.headers.telling import (
    AnsweredFields,
    match_rule,
    telling_candidates,
    telling_names,
)
from tapeway.core.matching.rules import (
    NO_RULES,
    Rules,
    merged_rules,
    meta_with_rules,
    rules_document,
    rules_of_meta,
)
from tapeway.core.misses.comparison import CallPair, Comparison, compare
from tapeway.core.misses.differences import Difference, difference_document
from tapeway.core.misses.nearest import request_differences
from tapeway.core.misses.suggestion import rules_text, with_free_names
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.text import escape_surrogates
from tapeway.settings.options import Settings, resolve_routes
from tapeway.settings.sources import flag_of, variable_of

_MAX_LISTED = 20
"""How many calls of one kind are listed."""
_UNEXPLAINED = 1
_RUN_TWICE = {"mode": "record", "store": "memory:"}
_EMPTY = StoredCassette(CassetteHead("", ""))


@command(but=("mode", "admin_listen"), cls=WrappingCommand)
@click.argument("cassettes", nargs=-1, metavar="[FIRST SECOND | -- COMMAND…]")
@click.option("--write", is_flag=True, help="Add the rules to cassette FIRST.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    metavar="N",
    help="Move the clock of the command's second run N days ahead (by libfaketime).",
)
@format_option
@click.pass_context
def doctor(
    context: click.Context,
    /,
    *,
    cassettes: tuple[str, ...],
    write: bool,
    days: int | None,
    output_format: OutputFormat,
    **flags: object,
) -> int:
    """Find out why one run does not replay another, and the matching rules to add.

    \b
        tapeway doctor before after
        tapeway doctor --route openai=http://127.0.0.1:9000 -- pytest -q

    Give two cassettes, by name or by file, that recorded the same run. Or give a command. The
    command runs twice against a proxy that records in memory, with the variables of tapeway env.

    With --days 3 the second run sees the clock of three days later: a date in a prompt differs.

    \b
    Exit codes:
        0    they match with the rules shown
        1    a difference stays unexplained, or the command failed
        2    an option is invalid, or a cassette cannot be read
        127  the command does not exist
    """
    wrapped = wrapped_command(context)
    if wrapped is None:
        if len(cassettes) != 2:
            raise click.UsageError("give two cassettes, or a command behind --.", context)
        if days is not None:
            raise click.UsageError(
                "--days needs a command behind --: it runs on two days.", context
            )
        if flags["store"] is not None:
            check_store_is_asked(context, cassettes)
        settings = prepare(flags)
        comparisons = [asyncio.run(_compare_cassettes(settings, *cassettes, write=write))]
        failed = False
    else:
        _check_run_twice(context, cassettes, flags, write=write)
        listen = flags["listen"] or FREE_PORTS["listen"]
        settings = prepare({**flags, **_RUN_TWICE, **FREE_PORTS, "listen": listen})
        later = os.environ if days is None else environment_days_later(os.environ, days)
        comparisons, failed = _compare_runs(
            settings, wrapped, {"first": os.environ, "second": later}
        )
    if comparisons:
        show = as_json if output_format == "json" else as_text
        click.echo(show(comparisons, settings.rules))
    if write and rules_to_add(comparisons):
        click.echo(f"Added to the rules of {cassettes[0]}.", err=True)
    return _UNEXPLAINED if failed or not explained(comparisons) else terminal.DONE


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Two takes by name, the rules in force for them, and how they compare."""

    first: str
    second: str
    rules: Rules
    comparison: Comparison
    told_apart: tuple[str, ...] = ()
    """Equal requests of a run that got different answers and that a header tells apart."""

    def unexplained(self, pair: CallPair) -> tuple[Difference, ...]:
        """What differs between two calls in spite of all rules."""
        rules = merged_rules(self.rules, self.comparison.rules)
        return request_differences(pair.first.request, pair.second.request, rules)


def rules_to_add(diagnoses: Sequence[Diagnosis]) -> Rules:
    """The rules that all diagnoses together suggest."""
    rules = NO_RULES
    for diagnose in diagnoses:
        rules = merged_rules(rules, with_free_names(diagnose.comparison.rules, rules))
    return rules


def explained(diagnoses: Sequence[Diagnosis]) -> bool:
    """Whether, with the rules added, each second run would be answered from the first."""
    return all(diagnose.comparison.explained for diagnose in diagnoses)


def _check_run_twice(
    context: click.Context,
    cassettes: Sequence[str],
    flags: Mapping[str, object],
    *,
    write: bool,
) -> None:
    if cassettes:
        raise click.UsageError("give two cassettes or a command, not both.", context)
    given = [flag_of(option) for option in _RUN_TWICE if flags.get(option) is not None]
    if write:
        given.append("--write")
    if given:
        raise click.UsageError(
            f"a command is recorded twice in memory: leave out {', '.join(given)}.", context
        )


async def _compare_cassettes(
    settings: Settings, first: str, second: str, *, write: bool
) -> Diagnosis:
    table = resolve_routes(settings, os.environ)
    async with (
        open_cassette(first, settings.store) as one,
        open_cassette(second, settings.store) as other,
    ):
        left, right = await one.load(writable=write), await other.load()
        rules = merged_rules(one.rules(left.head), settings.rules)
        comparison = compare(assign_routes(left, table), assign_routes(right, table), rules)
        if write and comparison.rules:
            meta = meta_with_rules(left.head.meta, merged_rules(rules, comparison.rules))
            # What others have recorded meanwhile stays.
            await one.store.replace_head(one.name, replace(left.head, meta=meta))
        told_apart = dict.fromkeys([*_told_apart(left, rules), *_told_apart(right, rules)])
        return Diagnosis(one.shown, other.shown, rules, comparison, tuple(told_apart))


def _compare_runs(
    settings: Settings, wrapped: Sequence[str], environments: Mapping[str, Mapping[str, str]]
) -> tuple[list[Diagnosis], bool]:
    """The comparison of two runs of a command, by environment, and whether a run failed."""
    takes: list[Mapping[str, StoredCassette]] = []
    failures: list[str] = []
    told_apart: dict[str, dict[str, None]] = {}
    for run, environ in environments.items():
        # The pytest plugin then records a cassette for each test, and ejects the cassette.
        recording = {**environ, variable_of("mode"): "record"}
        # Standard output is only for the diagnosis.
        wrapped_run = WrappedRun(wrapped, recording, sys.stderr, keeps_ejected=True)
        finished = run_wrapped(settings, wrapped_run)
        takes.append(finished.cassettes)
        for report in finished.reports:
            told_apart.setdefault(report.name, {}).update(dict.fromkeys(report.told_apart))
        if finished.code:
            failures.append(f"The command ended with code {finished.code} in its {run} run.")
        failures += finished.failures
    first, second = takes
    if not first and not second:
        failures.append("Nothing was recorded: no call of the command came to the proxy.")
    for failure in failures:
        click.echo(failure, err=True)
    comparisons = [
        Diagnosis(
            f"{name} (first run)",
            f"{name} (second run)",
            rules := _rules_of(settings, first.get(name, _EMPTY), second.get(name, _EMPTY)),
            compare(first.get(name, _EMPTY), second.get(name, _EMPTY), rules),
            tuple(told_apart.get(name, ())),
        )
        for name in sorted({*first, *second})
    ]
    return comparisons, bool(failures)


def _told_apart(stored: StoredCassette, rules: Rules) -> Iterator[str]:
    """Equal requests of a cassette with different answers that a stored header tells apart."""
    by_key: dict[bytes, list[Interaction]] = {}
    for item in stored.interactions:
        if isinstance(item, Interaction):
            by_key.setdefault(recording_key(item, rules), []).append(item)
    for group in by_key.values():
        answered = [
            AnsweredFields(
                telling_candidates(item.request.fields),
                (item.response.status, item.response.body, item.response.file),
            )
            for item in group
        ]
        varied = [name for item in group for name in item.request.varied]
        if names := telling_names(answered, (*rules.match, *varied)):
            request = group[0].request
            yield f"{request.method} {request.target}: {match_rule(names)}"


def _rules_of(settings: Settings, *recorded: StoredCassette) -> Rules:
    """The rules of the settings, and the presets with which cassettes began."""
    rules = settings.rules
    for cassette in recorded:
        rules = merged_rules(rules, rules_of_meta(cassette.head.meta))
    return rules


def as_text(diagnoses: Sequence[Diagnosis], present: Rules) -> str:
    """The diagnoses for people, with the rules ready to be pasted into tapeway.toml."""
    paragraphs = ["\n".join(_lines(diagnose)) for diagnose in diagnoses]
    rules = rules_to_add(diagnoses)
    if rules:
        paragraphs.append("Add under [rules] in tapeway.toml, in place of lines of the same name:")
        paragraphs.append(_toml(rules, present))
    if rules.ignore:
        paragraphs.append("What is ignored matches whatever it says: keep what a test is about.")
    told_apart = any(diagnose.told_apart for diagnose in diagnoses)
    if diagnoses and not rules and not told_apart and explained(diagnoses):
        paragraphs.append("No rule is needed.")
    return "\n\n".join(paragraphs)


def as_json(diagnoses: Sequence[Diagnosis], present: Rules) -> str:
    """One document about all diagnoses."""
    rules = rules_to_add(diagnoses)
    document: dict[str, Json] = {
        "explained": explained(diagnoses),
        "rules": rules_document(rules),
        "toml": _toml(rules, present),
        "cassettes": [_document(diagnose) for diagnose in diagnoses],
    }
    return dump(document).decode()


def _toml(rules: Rules, present: Rules) -> str:
    """The lines for `[rules]` that replace lines of equal names in the file."""
    both = merged_rules(present, rules)
    return rules_text(Rules(**{key: getattr(both, key) for key in rules_document(rules)}))


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    comparison = diagnosis.comparison
    pairs = len(comparison.unexplained)
    yield f"{diagnosis.first} and {diagnosis.second}: {_calls(comparison.equal)} equal"
    for differing in comparison.paths:
        path = escape_surrogates(differing.path)
        reason = ", which repeats part of an earlier answer" if differing.echoed else ""
        yield f"  {path} differs in {_calls(differing.calls)}{reason}"
        yield from _values(differing.example, "    ")
    if pairs:
        yield f"No rule explains {_calls(pairs)}:"
        for pair in comparison.unexplained[:_MAX_LISTED]:
            yield f"  {_call(pair.first)} and {_call(pair.second)}"
            for difference in diagnosis.unexplained(pair)[:_MAX_LISTED]:
                yield f"    {escape_surrogates(difference.path)}"
                yield from _values(difference, "      ")
    if diagnosis.told_apart:
        yield "Equal requests got different answers, and a header tells them apart:"
        yield from (f"  {terminal.line(told)}" for told in diagnosis.told_apart)
    yield from (
        terminal.line(f"{refusal[0].upper()}{refusal[1:]}.") for refusal in comparison.refusals
    )
    for name, calls in (
        (diagnosis.first, comparison.only_first),
        (diagnosis.second, comparison.only_second),
    ):
        if calls:
            yield f"{_calls(len(calls))} only in {name}:"
            yield from (f"  {_call(call)}" for call in calls[:_MAX_LISTED])


def _calls(count: int) -> str:
    return terminal.counted(count, "call")


def _call(interaction: Interaction) -> str:
    request = interaction.request
    return terminal.line(f"#{interaction.index} {request.method} {request.target}")


def _values(difference: Difference, indent: str) -> Iterator[str]:
    sides = difference_document(difference)
    for name, side in (("first", "recorded"), ("second", "requested")):
        value = dump(sides[side]).decode() if side in sides else "nothing"
        yield f"{indent}{name}: {value}"


def _document(diagnosis: Diagnosis) -> dict[str, Json]:
    comparison = diagnosis.comparison
    return {
        "first": diagnosis.first,
        "second": diagnosis.second,
        "equal": comparison.equal,
        "explained": comparison.explained,
        "differences": [
            {
                **difference_document(path.example),
                "path": escape_surrogates(path.path),
                "calls": path.calls,
                "echoed": path.echoed,
            }
            for path in comparison.paths
        ],
        "rules": rules_document(comparison.rules),
        "unexplained": [
            {
                "first": _named(pair.first),
                "second": _named(pair.second),
                "differences": [
                    difference_document(difference) for difference in diagnosis.unexplained(pair)
                ],
            }
            for pair in comparison.unexplained
        ],
        "told_apart": [escape_surrogates(told) for told in diagnosis.told_apart],
        "refusals": [escape_surrogates(refusal) for refusal in comparison.refusals],
        "only_first": [_named(recording) for recording in comparison.only_first],
        "only_second": [_named(recording) for recording in comparison.only_second],
    }


def _named(interaction: Interaction) -> dict[str, Json]:
    request = interaction.request
    return {
        "index": interaction.index,
        "method": escape_surrogates(request.method),
        "path": escape_surrogates(request.target),
    }
