"""`tapeway cassette diff`: in what two cassettes differ."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import plain_text
from tapeway.cli.contrast import Contrast, Pair, Told, contrast
from tapeway.cli.options import settings_options
from tapeway.cli.places import place
from tapeway.cli.sides import Side
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import RulesFault, merged, of_meta
from tapeway.core.misses.differences import shown
from tapeway.errors import CassetteCorrupt, TapewayError
from tapeway.settings.options import Settings, resolve_routes
from tapeway.settings.sources import load_settings

_DIFFERENT, _UNREADABLE = 1, 2


@click.command()
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@click.option("--headers", is_flag=True, help="Compare the answers' headers too.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config", "route", "upstream")
def diff(
    first: str, second: str, headers: bool, form: Literal["text", "json"], **flags: object
) -> int:
    """Show in what two cassettes differ, each by name, by file or as STORE#NAME.

    \b
    Exit: 0 in nothing, 1 in what is shown, 2 one cannot be read.

    Recordings of equal requests are compared in their order, under the rules of FIRST and of
    tapeway.toml, then those of one endpoint. Times, chunks and headers do not count. To find the
    rules that make one run replay another, there is tapeway doctor.
    """
    settings = load_settings(flags, os.environ, Path()).settings
    try:
        found = asyncio.run(_compare(settings, first, second, headers=headers))
    except TapewayError as exc:
        # Its own code would say that something differs.
        click.echo(f"tapeway: {plain_text.line(exc.message)}", err=True)
        return _UNREADABLE
    if form == "json":
        click.echo(dump(_document(found), indent=True).decode())
    else:
        for each in _lines(found):
            click.echo(each)
    return 0 if found.same else _DIFFERENT


async def _compare(settings: Settings, first: str, second: str, *, headers: bool) -> Contrast:
    table = resolve_routes(settings)
    async with place(first, settings.store) as one, place(second, settings.store) as other:
        left, right = await Side.of(one, table), await Side.of(other, table)
        try:
            rules = merged(of_meta(left.head.meta), settings.rules)
        except RulesFault as exc:
            raise CassetteCorrupt(f"cassette {one.shown}: meta.{exc}") from exc
        return await contrast(left, right, rules, headers=headers)


def _lines(found: Contrast) -> Iterator[str]:
    first, second = found.names
    for pair in found.different:
        yield f"{pair.first.summary}  and  #{pair.second.index}"
        for each in pair.differences:
            said = shown(each)
            yield plain_text.line(f"  {said['path']}")
            for name, side in ((first, "recorded"), (second, "requested")):
                value = dump(said[side]).decode() if side in said else "nothing"
                yield plain_text.line(f"    {name}: {value}")
        if pair.more:
            yield "  and more"
    for name, alone in ((first, found.only_first), (second, found.only_second)):
        for item in alone:
            yield f"only in {plain_text.line(name)}: {item.summary}"
    yield f"{found.equal} equal, {len(found.different)} different, " + plain_text.line(
        f"{len(found.only_first)} only in {first}, {len(found.only_second)} only in {second}"
    )


def _document(found: Contrast) -> dict[str, Json]:
    return {
        "equal": found.equal,
        "different": [_pair(each) for each in found.different],
        "only_first": _named(found.only_first),
        "only_second": _named(found.only_second),
    }


def _pair(pair: Pair) -> Json:
    told: list[Json] = []
    for each in pair.differences:
        said = shown(each)
        names = {"path": "path", "recorded": "first", "requested": "second"}
        told.append({names[name]: value for name, value in said.items()})
    return {
        "first": pair.first.index,
        "second": pair.second.index,
        "summary": pair.first.summary,
        "differences": told,
        "more": pair.more,
    }


def _named(items: Iterable[Told]) -> list[Json]:
    return [{"index": each.index, "summary": each.summary} for each in items]
