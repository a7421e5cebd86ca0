"""`tapeway cassette diff`: show where two cassettes differ.

Both cassettes are read once, and of each recording only digests are remembered. Recordings of equal
requests are paired in order, then the remaining ones of the same endpoint. Only pairs whose digests
differ are read again and compared.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import click

from tapeway.cli import terminal
from tapeway.cli.cassette import render
from tapeway.cli.options import OutputFormat, cassette_command
from tapeway.cli.places import CassettePlace, open_cassette
from tapeway.core.http.routing import RouteTable, assign_route
from tapeway.core.json_text import Json, NotJson, canonical, dump, parse
from tapeway.core.matching.credential_fields import compared_key, without_digests
from tapeway.core.matching.rules import Rules, merged_rules
from tapeway.core.misses.differences import Difference, difference_document, differences
from tapeway.core.misses.nearest import path_of, request_differences
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Response
from tapeway.core.streams.documents import documents
from tapeway.core.text import decode_utf8
from tapeway.errors import StoreError
from tapeway.settings.options import Settings, resolve_routes

_MAX_DIFFERENCES = 20
"""How many differences of one pair are shown."""

_NOT_COMPARED = ("index", "latency_ms", "match_key", "request")
"""Fields that differ between two records of one call, or that are compared on their own."""


@cassette_command("route", "upstream")
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@click.option("--headers", is_flag=True, help="Compare response headers too.")
def diff(
    first: str, second: str, headers: bool, output_format: OutputFormat, settings: Settings
) -> int:
    """Show where two cassettes differ.

    Each is named by its name in the store, by its file, or as STORE#NAME.

    \b
        tapeway cassette diff smoke smoke-new
        tapeway cassette diff smoke sqlite:./cassettes.db#smoke

    \b
    Exit codes:
        0  no difference
        1  they differ
        2  one cannot be read

    Recordings of equal requests are compared in order, under the rules of FIRST and of
    tapeway.toml, then the remaining ones of the same endpoint. Times and chunks are not compared.
    To find matching rules, use tapeway doctor.
    """
    found = asyncio.run(_diff(settings, first, second, headers=headers))
    if output_format == "json":
        click.echo(dump(_as_json(found), indent=True).decode())
    else:
        for each in _lines(found):
            click.echo(each)
    return terminal.DONE if found.same else terminal.FOUND


@dataclass(frozen=True, slots=True)
class RecordingPair:
    """Two recordings of one call and their first differences; `more` if there are others."""

    first: render.NamedRecording
    second: render.NamedRecording
    differences: tuple[Difference, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class CassetteDiff:
    """How two cassettes compare."""

    names: tuple[str, str]
    equal: int
    different: tuple[RecordingPair, ...]
    only_first: tuple[render.NamedRecording, ...]
    only_second: tuple[render.NamedRecording, ...]

    @property
    def same(self) -> bool:
        return not (self.different or self.only_first or self.only_second)


@dataclass(frozen=True, slots=True)
class DiffSource:
    """A cassette that is read once and then looked up by index, with a route for each recording.

    It is loaded into memory only if its store cannot look up a single recording.
    """

    head: CassetteHead
    place: CassettePlace
    table: RouteTable
    loaded: dict[int, AnyInteraction] | None

    @classmethod
    async def open(cls, place: CassettePlace, table: RouteTable) -> "DiffSource":
        """The cassette at a place. Raises ConfigError if there is none, StoreError."""
        if place.store.capabilities.shared is not None:
            return cls((await place.walk()).head, place, table, None)
        stored = await place.load()
        return cls(stored.head, place, table, {each.index: each for each in stored.interactions})

    async def items(self) -> AsyncIterator[AnyInteraction]:
        """All interactions in order."""
        if self.loaded is not None:
            for each in self.loaded.values():
                yield assign_route(each, self.table)
            return
        async for each in (await self.place.walk()).items:
            yield assign_route(each, self.table)

    async def get(self, index: int) -> AnyInteraction:
        """An interaction that `items` returned before. Raises StoreError if it was removed since."""
        item = await self.place.get(index) if self.loaded is None else self.loaded[index]
        if item is None:
            raise StoreError(f"{self.place.shown} was changed while it was read: try again")
        return assign_route(item, self.table)

    async def named(self, digests: Sequence["_Digests"]) -> tuple[render.NamedRecording, ...]:
        """These recordings as they are shown."""
        return tuple([render.named(await self.get(each.number)) for each in digests])


class _Digests(NamedTuple):
    """What is remembered of a recording. Those of one call are equal in all but the number."""

    number: int
    request: bytes
    endpoint: bytes
    response: bytes


async def _diff(settings: Settings, first: str, second: str, *, headers: bool) -> CassetteDiff:
    table = resolve_routes(settings)
    async with (
        open_cassette(first, settings.store) as one,
        open_cassette(second, settings.store) as other,
    ):
        sources = await DiffSource.open(one, table), await DiffSource.open(other, table)
        rules = merged_rules(one.rules(sources[0].head), settings.rules)
        return await _compare(*sources, rules, headers=headers)


async def _compare(
    first: DiffSource, second: DiffSource, rules: Rules, *, headers: bool
) -> CassetteDiff:
    left = [_digests(each, rules, headers=headers) async for each in first.items()]
    right = [_digests(each, rules, headers=headers) async for each in second.items()]
    pairs, left, right = _paired(left, right, lambda each: each.request)
    others, left, right = _paired(left, right, lambda each: each.endpoint)
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
    return CassetteDiff(
        (first.place.shown, second.place.shown),
        equal,
        tuple(different),
        await first.named(left),
        await second.named(right),
    )


def _digests(item: AnyInteraction, rules: Rules, *, headers: bool) -> _Digests:
    if isinstance(item, Interaction):
        request = item.request
        endpoint = [request.route, request.method, path_of(request, rules)]
        return _Digests(
            item.index,
            _digest(compared_key(without_digests(request), rules, recorded=True)),
            _digest(repr(endpoint).encode("utf-8", "backslashreplace")),
            _digest(canonical(_response(item, headers=headers))),
        )
    kind = repr((str(item.document.get("kind")), str(item.document.get("boundary")))).encode()
    asked = kind + canonical(item.document.get("request"))
    return _Digests(item.index, _digest(asked), _digest(kind), _digest(canonical(_rest(item))))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def _paired(
    left: Sequence[_Digests], right: Sequence[_Digests], by: Callable[[_Digests], bytes]
) -> tuple[list[tuple[_Digests, _Digests]], list[_Digests], list[_Digests]]:
    """Pairs of equal digest in order, and those of either side that are in no pair."""
    waiting: dict[bytes, list[_Digests]] = defaultdict(list)
    for each in reversed(right):
        waiting[by(each)].append(each)
    pairs: list[tuple[_Digests, _Digests]] = []
    alone: list[_Digests] = []
    for each in left:
        if found := waiting.get(by(each)):
            pairs.append((each, found.pop()))
        else:
            alone.append(each)
    paired = {other.number for _, other in pairs}
    return pairs, alone, [each for each in right if each.number not in paired]


def _compare_pair(
    first: AnyInteraction, second: AnyInteraction, rules: Rules, *, headers: bool
) -> RecordingPair:
    found = list(islice(_differences(first, second, rules, headers=headers), _MAX_DIFFERENCES + 1))
    more = len(found) > _MAX_DIFFERENCES
    return RecordingPair(
        render.named(first), render.named(second), tuple(found[:_MAX_DIFFERENCES]), more
    )


def _differences(
    first: AnyInteraction, second: AnyInteraction, rules: Rules, *, headers: bool
) -> Iterator[Difference]:
    budget = _MAX_DIFFERENCES + 1
    if isinstance(first, Interaction) and isinstance(second, Interaction):
        for each in request_differences(first.request, second.request, rules):
            yield replace(each, steps=("request", *each.steps))
        responses = _response(first, headers=headers), _response(second, headers=headers)
        yield from differences(*responses, budget)
    elif isinstance(first, ForeignInteraction) and isinstance(second, ForeignInteraction):
        yield from differences(_request(first), _request(second), budget)
        yield from differences(_rest(first), _rest(second), budget)


def _response(item: Interaction, *, headers: bool) -> Json:
    response = item.response
    parts: dict[str, Json] = {"status": response.status, "body": _body(response)}
    if headers:
        parts["headers"] = _headers(response)
    document: dict[str, Json] = {"response": parts}
    if item.failure is not None:
        document["failure"] = item.failure.kind
    return document


def _body(response: Response) -> Json:
    """The values of a body or of a stream's events; if they are no text, their hash."""
    if response.file is not None:
        return {"sha256": response.file.digest, "bytes": response.file.size}
    values = [_value(each) for each in documents(response)]
    return values[0] if len(values) == 1 else [*values]


def _value(data: bytes) -> Json:
    try:
        return parse(data, by_value=True)
    except NotJson:
        text = decode_utf8(data)
    if text is not None:
        return text
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _headers(response: Response) -> Json:
    fields: dict[str, list[Json]] = {}
    for name, value in response.headers:
        text = value.decode("utf-8", "backslashreplace")
        fields.setdefault(name.decode("latin-1").lower(), []).append(text)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _request(item: ForeignInteraction) -> Json:
    return {"request": item.document.get("request")}


def _rest(item: ForeignInteraction) -> Json:
    return {name: value for name, value in item.document.items() if name not in _NOT_COMPARED}


def _lines(found: CassetteDiff) -> Iterator[str]:
    first, second = found.names
    for pair in found.different:
        yield f"{pair.first.summary}  and  #{pair.second.index}"
        for each in pair.differences:
            values = difference_document(each)
            yield terminal.line(f"  {values['path']}")
            for name, side in ((first, "recorded"), (second, "requested")):
                value = dump(values[side]).decode() if side in values else "nothing"
                yield terminal.line(f"    {name}: {value}")
        if pair.more:
            yield "  and more"
    for name, alone in ((first, found.only_first), (second, found.only_second)):
        for item in alone:
            yield f"only in {terminal.line(name)}: {item.summary}"
    yield f"{found.equal} equal, {len(found.different)} different, " + terminal.line(
        f"{len(found.only_first)} only in {first}, {len(found.only_second)} only in {second}"
    )


def _as_json(found: CassetteDiff) -> dict[str, Json]:
    return {
        "equal": found.equal,
        "different": [_pair_as_json(each) for each in found.different],
        "only_first": render.listed(found.only_first),
        "only_second": render.listed(found.only_second),
    }


def _pair_as_json(pair: RecordingPair) -> Json:
    names = {"path": "path", "recorded": "first", "requested": "second"}
    found: list[Json] = [
        {names[name]: value for name, value in difference_document(each).items()}
        for each in pair.differences
    ]
    return {
        "first": pair.first.index,
        "second": pair.second.index,
        "summary": pair.first.summary,
        "differences": found,
        "more": pair.more,
    }
