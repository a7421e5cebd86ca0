"""`tapeway cassette diff`: in what two cassettes differ.

Two cassettes laid beside each other: which recordings stand for which, and where they differ.

One of two cassettes that are compared: gone through once, and then looked up.
"""

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import click

from tapeway.cli import terminal
from tapeway.cli.cassette import render
from tapeway.cli.options import settings_options
from tapeway.cli.places import CassettePlace, place
from tapeway.core.http.routing import RouteTable, assign_route
from tapeway.core.json_text import Json, NotJson, canonical, dump, parse
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import Rules, RulesFault, merged_rules, rules_of_meta
from tapeway.core.misses.differences import Difference, differences, shown
from tapeway.core.misses.nearest import compared, path_of
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Response
from tapeway.core.streams.documents import documents
from tapeway.core.text import decode_utf8
from tapeway.errors import CassetteCorrupt, StoreError, TapewayError
from tapeway.settings.options import Settings, resolve_routes
from tapeway.settings.sources import load_settings

MOST = 20
"""Differences of one pair that are told."""

_OWN = ("index", "latency_ms", "match_key", "request")
"""What is not a difference between two tools' records of one call, or is told apart."""
_DIFFERENT, _UNREADABLE = 1, 2


@dataclass(frozen=True, slots=True)
class DiffSource:
    """Its recordings, each with a route; in memory only where its store finds no single one."""

    head: CassetteHead
    place: CassettePlace
    table: RouteTable
    loaded: dict[int, AnyInteraction] | None

    @classmethod
    async def of(cls, place: CassettePlace, table: RouteTable) -> "DiffSource":
        """The cassette at a place. Raises ConfigError where there is none, StoreError."""
        if place.store.capabilities.shared is not None:
            return cls((await place.walk()).head, place, table, None)
        stored = await place.load()
        return cls(stored.head, place, table, {each.index: each for each in stored.interactions})

    async def items(self) -> AsyncIterator[AnyInteraction]:
        """All of them in order."""
        if self.loaded is not None:
            for each in self.loaded.values():
                yield assign_route(each, self.table)
            return
        async for each in (await self.place.walk()).items:
            yield assign_route(each, self.table)

    async def get(self, index: int) -> AnyInteraction:
        """One of those that were gone through. Raises StoreError where it went since."""
        if self.loaded is not None:
            return assign_route(self.loaded[index], self.table)
        item = await self.place.get(index)
        if item is None:
            raise StoreError(f"{self.place.shown} was changed while it was read: try again")
        return assign_route(item, self.table)


@dataclass(frozen=True, slots=True)
class NamedRecording:
    """A recording as it is named to people."""

    index: int
    summary: str


@dataclass(frozen=True, slots=True)
class RecordingPair:
    """Two recordings of one call, and where they differ; `more` beyond those that are told."""

    first: NamedRecording
    second: NamedRecording
    differences: tuple[Difference, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Contrast:
    """How two cassettes compare."""

    names: tuple[str, str]
    equal: int
    different: tuple[RecordingPair, ...]
    only_first: tuple[NamedRecording, ...]
    only_second: tuple[NamedRecording, ...]

    @property
    def same(self) -> bool:
        return not (self.different or self.only_first or self.only_second)


class _Entry(NamedTuple):
    """What is remembered of a recording: digests of its request, its endpoint and its answer."""

    number: int
    exactly: bytes
    roughly: bytes
    answer: bytes


async def contrast(
    first: DiffSource, second: DiffSource, rules: Rules, *, headers: bool = False
) -> Contrast:
    """Pairs recordings of equal requests in their order, then those of one endpoint in theirs.

    Each side is gone through once; looked at again is only what is not the same in all.
    """
    left = [_entry(each, rules, headers=headers) async for each in first.items()]
    right = [_entry(each, rules, headers=headers) async for each in second.items()]
    pairs, left, right = _paired(left, right, lambda each: each.exactly)
    others, left, right = _paired(left, right, lambda each: each.roughly)
    equal = 0
    different: list[RecordingPair] = []
    for one, other in sorted([*pairs, *others]):
        if one[1:] == other[1:]:
            equal += 1
            continue
        items = await first.get(one.number), await second.get(other.number)
        pair = _compare_pair(*items, rules, headers=headers)
        equal += not pair.differences
        different += [pair] if pair.differences else []
    alone = [await _told(first, left), await _told(second, right)]
    names = first.place.shown, second.place.shown
    return Contrast(names, equal, tuple(different), alone[0], alone[1])


def _entry(item: AnyInteraction, rules: Rules, *, headers: bool) -> _Entry:
    if isinstance(item, Interaction):
        request = item.request
        endpoint = [request.route, request.method, path_of(request, rules)]
        return _Entry(
            item.index,
            _digest(request_key(request, rules)),
            _digest(repr(endpoint).encode("utf-8", "backslashreplace")),
            _digest(canonical(_answer(item, headers=headers))),
        )
    kind = repr(_kind(item)).encode()
    asked = kind + canonical(item.document.get("request"))
    return _Entry(item.index, _digest(asked), _digest(kind), _digest(canonical(_rest(item))))


def _paired(
    left: Sequence[_Entry], right: Sequence[_Entry], of: Callable[[_Entry], bytes]
) -> tuple[list[tuple[_Entry, _Entry]], list[_Entry], list[_Entry]]:
    """The pairs, and who found nobody on either side."""
    waiting: dict[bytes, list[_Entry]] = defaultdict(list)
    for each in reversed(right):
        waiting[of(each)].append(each)
    pairs: list[tuple[_Entry, _Entry]] = []
    alone: list[_Entry] = []
    for each in left:
        if found := waiting.get(of(each)):
            pairs.append((each, found.pop()))
        else:
            alone.append(each)
    taken = {other.number for _, other in pairs}
    return pairs, alone, [each for each in right if each.number not in taken]


def _compare_pair(
    first: AnyInteraction, second: AnyInteraction, rules: Rules, *, headers: bool
) -> RecordingPair:
    found = list(islice(_differences(first, second, rules, headers=headers), MOST + 1))
    told = [NamedRecording(each.index, render.summary(each)) for each in (first, second)]
    return RecordingPair(told[0], told[1], tuple(found[:MOST]), more=len(found) > MOST)


async def _told(side: DiffSource, entries: Sequence[_Entry]) -> tuple[NamedRecording, ...]:
    found = [await side.get(each.number) for each in entries]
    return tuple([NamedRecording(each.index, render.summary(each)) for each in found])


def _digest(said: bytes) -> bytes:
    return hashlib.sha256(said).digest()[:16]


def _differences(
    first: AnyInteraction, second: AnyInteraction, rules: Rules, *, headers: bool
) -> Iterator[Difference]:
    if isinstance(first, Interaction) and isinstance(second, Interaction):
        for each in compared(first.request, second.request, rules):
            yield replace(each, steps=("request", *each.steps))
        answers = _answer(first, headers=headers), _answer(second, headers=headers)
        yield from differences(*answers, MOST + 1)
    elif isinstance(first, ForeignInteraction) and isinstance(second, ForeignInteraction):
        yield from differences(_asked(first), _asked(second), MOST + 1)
        yield from differences(_rest(first), _rest(second), MOST + 1)


def _answer(item: Interaction, *, headers: bool) -> Json:
    response = item.response
    said: dict[str, Json] = {"status": response.status, "body": _body(response)}
    if headers:
        said["headers"] = _headers(response)
    found: dict[str, Json] = {"response": said}
    if item.failure is not None:
        found["failure"] = item.failure.kind
    return found


def _body(response: Response) -> Json:
    """The values of a body or of a stream's events; what is no text by its hash."""
    if response.file is not None:
        return {"sha256": response.file.digest, "bytes": response.file.size}
    found = [_value(each) for each in documents(response)]
    return found[0] if len(found) == 1 else [*found]


def _value(text: bytes) -> Json:
    try:
        return parse(text, by_value=True)
    except NotJson:
        pass
    decoded = decode_utf8(text)
    if decoded is not None:
        return decoded
    return {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}


def _headers(response: Response) -> Json:
    found: dict[str, list[Json]] = {}
    for name, value in response.headers:
        said = value.decode("utf-8", "backslashreplace")
        found.setdefault(name.decode("latin-1").lower(), []).append(said)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _kind(item: ForeignInteraction) -> tuple[str, str]:
    return str(item.document.get("kind")), str(item.document.get("boundary"))


def _rest(item: ForeignInteraction) -> Json:
    return {name: value for name, value in item.document.items() if name not in _OWN}


def _asked(item: ForeignInteraction) -> Json:
    return {"request": item.document.get("request")}


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
        click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
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
        left, right = await DiffSource.of(one, table), await DiffSource.of(other, table)
        try:
            rules = merged_rules(rules_of_meta(left.head.meta), settings.rules)
        except RulesFault as exc:
            raise CassetteCorrupt(f"cassette {one.shown}: meta.{exc}") from exc
        return await contrast(left, right, rules, headers=headers)


def _lines(found: Contrast) -> Iterator[str]:
    first, second = found.names
    for pair in found.different:
        yield f"{pair.first.summary}  and  #{pair.second.index}"
        for each in pair.differences:
            said = shown(each)
            yield terminal.line(f"  {said['path']}")
            for name, side in ((first, "recorded"), (second, "requested")):
                value = dump(said[side]).decode() if side in said else "nothing"
                yield terminal.line(f"    {name}: {value}")
        if pair.more:
            yield "  and more"
    for name, alone in ((first, found.only_first), (second, found.only_second)):
        for item in alone:
            yield f"only in {terminal.line(name)}: {item.summary}"
    yield f"{found.equal} equal, {len(found.different)} different, " + terminal.line(
        f"{len(found.only_first)} only in {first}, {len(found.only_second)} only in {second}"
    )


def _document(found: Contrast) -> dict[str, Json]:
    return {
        "equal": found.equal,
        "different": [_pair(each) for each in found.different],
        "only_first": _named(found.only_first),
        "only_second": _named(found.only_second),
    }


def _pair(pair: RecordingPair) -> Json:
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


def _named(items: Iterable[NamedRecording]) -> list[Json]:
    return [{"index": each.index, "summary": each.summary} for each in items]
