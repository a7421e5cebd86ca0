"""`tapeway cassette prune`: drop the recordings a run did not use, or earlier answers."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import foreign_file, plain_text
from tapeway.cli.findings import CLEAN, UNREADABLE
from tapeway.cli.options import settings_options
from tapeway.cli.places import Place, check_lasting, place
from tapeway.cli.pruning import Choice, EarlierOnes, Unused, UnusedOnes, choose, read_report
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import RulesFault, merged, of_meta
from tapeway.core.model.cassette import CassetteHead
from tapeway.errors import CassetteCorrupt, ConfigError, TapewayError
from tapeway.paging import walk_over
from tapeway.ports import Editable, SharedStore
from tapeway.settings.options import Settings
from tapeway.settings.sources import load_settings


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to go."""

    report: Mapping[str, Sequence[Unused]] | None
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
    used = None if report is None else read_report(foreign_file.content(Path(report)), report)
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
            click.echo(f"tapeway: {plain_text.line(exc.message)}", err=True)
            code = UNREADABLE
    if form == "json":
        documents = [_document(shown, choice, dry_run=wish.dry_run) for shown, choice in told]
        click.echo(dump([*documents], indent=True).decode())
        return code
    for shown, choice in told:
        _print(plain_text.line(shown), choice, dry_run=wish.dry_run)
    return code


async def _pruned(found: Place, wish: _Wish, settings: Settings) -> Choice:
    check_lasting(found.store)
    if isinstance(found.store, Editable):
        through = await found.walk()
        choice = await choose(through, *_ways(found, wish, through.head, settings))
        for each in choice.going if not wish.dry_run else []:
            await found.store.edit(found.name, each.index, None)
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
    found: Place, wish: _Wish, head: CassetteHead, settings: Settings
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
            numbered_for_good=isinstance(found.store, SharedStore),
        )
    if wish.keep_last is not None:
        try:
            rules = merged(of_meta(head.meta), settings.rules)
        except RulesFault as exc:
            raise CassetteCorrupt(f"{found.shown}: meta.{exc}") from exc
        earlier = EarlierOnes(wish.keep_last, rules)
    return unused, earlier


def _print(shown: str, choice: Choice, *, dry_run: bool) -> None:
    deed = "would go" if dry_run else "dropped"
    for each in choice.going:
        click.echo(f"{shown}: {deed}: {each.title}")
    left = choice.total - len(choice.going)
    told = f"{len(choice.going)} of {plain_text.counted(choice.total, 'interaction')} {deed}"
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
