"""`tapeway cassette prune`: drop the recordings a run did not use, or earlier answers.

Which recordings of a cassette are to go: those a run did not use, or earlier answers.
"""

import asyncio
import os
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import click
from pydantic import BaseModel, ValidationError

from tapeway.cli import terminal
from tapeway.cli.cassette import render
from tapeway.cli.options import settings_options
from tapeway.cli.places import CassettePlace, check_lasting, place
from tapeway.cli.terminal import CLEAN, UNREADABLE
from tapeway.cli.transfer import endpoints
from tapeway.core.agenttape import lookup
from tapeway.core.http.routing import origin
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.key import key_digest, request_key
from tapeway.core.matching.rules import Rules, RulesFault, merged_rules, rules_of_meta
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction, fingerprint
from tapeway.core.text import escape_surrogates
from tapeway.errors import CassetteCorrupt, ConfigError, TapewayError
from tapeway.paging import CassetteWalk, walk_over
from tapeway.settings.options import Settings
from tapeway.settings.sources import load_settings


class ReportedRecording(BaseModel):
    """A recording that a report names."""

    index: int
    method: str
    path: str
    mark: str | None = None


class ReportedUse(BaseModel):
    """What a report says of one cassette's use."""

    name: str
    unused: list[ReportedRecording]


class UseReport(BaseModel):
    """The part of a report that says what went unused."""

    cassettes: list[ReportedUse]


def read_report(text: bytes, shown: str) -> dict[str, list[ReportedRecording]]:
    """What each cassette did not need, by its name. Raises ConfigError for what is no report."""
    try:
        found = UseReport.model_validate_json(text)
    except ValidationError:
        raise ConfigError(
            f"{shown} is no report: give the JSON that tapeway run --report FILE.json wrote, or "
            "that GET /api/v1/report answered"
        ) from None
    return {each.name: each.unused for each in found.cassettes}


@dataclass(frozen=True, slots=True)
class Going:
    """A recording that goes, and its line for people."""

    index: int
    title: str


@dataclass(slots=True)
class Choice:
    """What goes, in order, of how many there were."""

    total: int = 0
    going: list[Going] = field(default_factory=list)


class UnusedOnes:
    """Finds the recordings a report names, also under other numbers.

    `numbered_for_good` where a number never comes to mean another recording: then a report without
    marks will do, and one that is gone went before.
    """

    def __init__(
        self, named: Sequence[ReportedRecording], shown: str, *, numbered_for_good: bool
    ) -> None:
        self._shown = shown
        self._by_index = {each.index: each for each in named if each.mark is None}
        if self._by_index and not numbered_for_good:
            raise ConfigError(f"the report does not say which recordings of {shown}: {_ANEW}")
        self._by_mark: dict[str, list[ReportedRecording]] = defaultdict(list)
        for each in named:
            if each.mark is not None:
                self._by_mark[each.mark].append(each)
        self._seen: dict[str, list[Going]] = defaultdict(list)
        self._found: list[Going] = []

    def look(self, item: AnyInteraction) -> None:
        """Take note of one as it goes by. Raises ConfigError for one that is another by now."""
        if not isinstance(item, Interaction):
            return
        if self._by_mark and (mark := fingerprint(item)) in self._by_mark:
            self._seen[mark].append(_going(item))
        if (named := self._by_index.get(item.index)) is not None:
            request = item.request
            if (request.method, escape_surrogates(request.target)) != (named.method, named.path):
                raise self._changed(named)
            self._found.append(_going(item))

    def chosen(self) -> list[Going]:
        """Those to drop, once all went by. Raises ConfigError where some are not there."""
        found = self._found
        for mark, named in self._by_mark.items():
            numbers = {each.index for each in named}
            same = self._seen.get(mark, [])
            if len(same) < len(named):
                raise self._changed(named[0])
            # Of several that are the same in all, the last ones are those that were not reached.
            same.sort(key=lambda each: (each.index not in numbers, -each.index))
            found += same[: len(named)]
        return found

    def _changed(self, named: ReportedRecording) -> ConfigError:
        return ConfigError(
            f"{self._shown} has changed since the report, where #{named.index} was {named.method} "
            f"{named.path}: {_ANEW}"
        )


_ANEW = "make a new report with tapeway run --report FILE.json"


class EarlierOnes:
    """Finds, of the recordings of one request, all but the last ones."""

    def __init__(self, keep: int, rules: Rules) -> None:
        self._keep = keep
        self._rules = rules
        self._last: dict[tuple[str, bytes], deque[Going]] = defaultdict(deque)

    def look(self, item: AnyInteraction) -> Going | None:
        """One that is too many now that this one went by."""
        # What answers in order, whatever is asked, is no repeat of anything.
        if not isinstance(item, Interaction) or lookup.answers_in_order(item):
            return None
        request = item.request
        route = request.route or origin(request.base)
        last = self._last[route, key_digest(request_key(request, self._rules))]
        last.append(_going(item))
        return last.popleft() if len(last) > self._keep else None


async def choose(
    through: CassetteWalk, unused: UnusedOnes | None, earlier: EarlierOnes | None
) -> Choice:
    """What goes by either. Raises ConfigError, StoreError."""
    choice = Choice()
    going: dict[int, Going] = {}
    async for item in through.items:
        choice.total += 1
        if unused is not None:
            unused.look(item)
        if earlier is not None and (one := earlier.look(item)) is not None:
            going[one.index] = one
    going |= {each.index: each for each in (unused.chosen() if unused is not None else [])}
    choice.going = [going[index] for index in sorted(going)]
    return choice


def _going(item: Interaction) -> Going:
    return Going(item.index, render.summary(item))


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to go."""

    report: Mapping[str, Sequence[ReportedRecording]] | None
    keep_last: int | None
    dry_run: bool


@click.command()
@click.argument("names", metavar="[NAME|FILE|STORE#NAME]...", nargs=-1)
@click.option("--report", metavar="FILE", help="Drop what went unused by this report (.json).")
@click.option(
    "--keep-last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of the recordings of one request keep the last N.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config")
def prune(
    names: tuple[str, ...],
    report: str | None,
    keep_last: int | None,
    dry_run: bool,
    form: Literal["text", "json"],
    **flags: object,
) -> int:
    """Drop recordings: what a run did not use, or all but the last answers to a request.

    \b
        tapeway run --mode replay --report run.json -- pytest -q
        tapeway cassette prune --report run.json --dry-run
        tapeway cassette prune --report run.json
        tapeway cassette prune smoke --keep-last 1

    \b
    Exit: 0 done, 2 something was not done, and that cassette is as it was.

    Without a name, all cassettes of the report are meant that hold something unused. Recordings are
    found by what they hold: where a cassette has lost some of them since the report, nothing is
    dropped. Recordings of other kinds than HTTP always stay.
    """
    if report is None and keep_last is None:
        raise click.UsageError("say what is to go: --report FILE or --keep-last N.")
    settings = load_settings(flags, os.environ, Path()).settings
    used = None if report is None else read_report(endpoints.content(Path(report)), report)
    if not names:
        if used is None:
            raise click.UsageError("name the cassettes, or give a --report that does.")
        names = tuple([name for name, unused in used.items() if unused])
    return asyncio.run(_prune(names, _Wish(used, keep_last, dry_run), settings, form))


async def _prune(names: Sequence[str], wish: _Wish, settings: Settings, form: str) -> int:
    code, told = CLEAN, []
    for name in names:
        try:
            async with place(name, settings.store) as found:
                choice = await _pruned(found, wish, settings)
                told.append((found.shown, choice))
        except TapewayError as exc:
            click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
            code = UNREADABLE
    if form == "json":
        documents = [_document(shown, choice, dry_run=wish.dry_run) for shown, choice in told]
        click.echo(dump([*documents], indent=True).decode())
        return code
    for shown, choice in told:
        _print(terminal.line(shown), choice, dry_run=wish.dry_run)
    return code


async def _pruned(found: CassettePlace, wish: _Wish, settings: Settings) -> Choice:
    check_lasting(found.store)
    if (editor := found.store.capabilities.cassette_editor) is not None:
        through = await found.walk()
        choice = await choose(through, *_ways(found, wish, through.head, settings))
        for each in choice.going if not wish.dry_run else []:
            await editor.edit(found.name, each.index, None)
        return choice
    # Claimed before it is looked at: nobody changes it between.
    stored = await found.load(writable=not wish.dry_run)
    choice = await choose(walk_over(stored), *_ways(found, wish, stored.head, settings))
    if choice.going and not wish.dry_run:
        going = {each.index for each in choice.going}
        left = tuple([each for each in stored.interactions if each.index not in going])
        await found.store.save(found.name, replace(stored, interactions=left))
    return choice


def _ways(
    found: CassettePlace, wish: _Wish, head: CassetteHead, settings: Settings
) -> tuple[UnusedOnes | None, EarlierOnes | None]:
    unused = earlier = None
    if wish.report is not None:
        if found.name not in wish.report:
            raise ConfigError(
                f"the report says nothing of {found.shown}: it was not used in that run"
            )
        unused = UnusedOnes(
            wish.report[found.name],
            found.shown,
            numbered_for_good=found.store.capabilities.shared is not None,
        )
    if wish.keep_last is not None:
        try:
            rules = merged_rules(rules_of_meta(head.meta), settings.rules)
        except RulesFault as exc:
            raise CassetteCorrupt(f"{found.shown}: meta.{exc}") from exc
        earlier = EarlierOnes(wish.keep_last, rules)
    return unused, earlier


def _print(shown: str, choice: Choice, *, dry_run: bool) -> None:
    deed = "would go" if dry_run else "dropped"
    for each in choice.going:
        click.echo(f"{shown}: {deed}: {each.title}")
    left = choice.total - len(choice.going)
    told = f"{len(choice.going)} of {terminal.counted(choice.total, 'interaction')} {deed}"
    click.echo(f"{shown}: {told}, {left} left")


def _document(shown: str, choice: Choice, *, dry_run: bool) -> Json:
    going: list[Json] = [{"index": each.index, "summary": each.title} for each in choice.going]
    left = choice.total - len(choice.going)
    return {
        "name": shown,
        "interactions": choice.total,
        "left": left,
        "dropped": going,
        "dry_run": dry_run,
    }
