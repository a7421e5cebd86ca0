"""Two cassettes laid beside each other: which recordings stand for which, and where they differ."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from tapeway.cli import exhibits
from tapeway.cli.sides import Side
from tapeway.core.json_text import Json, NotJson, canonical, parse
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.differences import Difference, differences
from tapeway.core.misses.nearest import compared, path_of
from tapeway.core.model.cassette import Held
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Response
from tapeway.core.streams.documents import documents

MOST = 20
"""Differences of one pair that are told."""

_OWN = ("index", "latency_ms", "match_key", "request")
"""What is not a difference between two tools' records of one call, or is told apart."""


@dataclass(frozen=True, slots=True)
class Told:
    """A recording as it is named to people."""

    index: int
    summary: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two recordings of one call, and where they differ; `more` beyond those that are told."""

    first: Told
    second: Told
    differences: tuple[Difference, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Contrast:
    """How two cassettes compare."""

    names: tuple[str, str]
    equal: int
    different: tuple[Pair, ...]
    only_first: tuple[Told, ...]
    only_second: tuple[Told, ...]

    @property
    def same(self) -> bool:
        return not (self.different or self.only_first or self.only_second)


class _Entry(NamedTuple):
    """What is remembered of a recording: digests of its request, its endpoint and its answer."""

    number: int
    exactly: bytes
    roughly: bytes
    answer: bytes


async def contrast(first: Side, second: Side, rules: Rules, *, headers: bool = False) -> Contrast:
    """Pairs recordings of equal requests in their order, then those of one endpoint in theirs.

    Each side is gone through once; looked at again is only what is not the same in all.
    """
    left = [_entry(each, rules, headers=headers) async for each in first.items()]
    right = [_entry(each, rules, headers=headers) async for each in second.items()]
    pairs, left, right = _paired(left, right, lambda each: each.exactly)
    others, left, right = _paired(left, right, lambda each: each.roughly)
    equal = 0
    different: list[Pair] = []
    for one, other in sorted([*pairs, *others]):
        if one[1:] == other[1:]:
            equal += 1
            continue
        items = await first.get(one.number), await second.get(other.number)
        pair = _pair(*items, rules, headers=headers)
        equal += not pair.differences
        different += [pair] if pair.differences else []
    alone = [await _told(first, left), await _told(second, right)]
    names = first.place.shown, second.place.shown
    return Contrast(names, equal, tuple(different), alone[0], alone[1])


def _entry(item: Held, rules: Rules, *, headers: bool) -> _Entry:
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


def _pair(first: Held, second: Held, rules: Rules, *, headers: bool) -> Pair:
    found = list(islice(_differences(first, second, rules, headers=headers), MOST + 1))
    told = [Told(each.index, exhibits.summary(each)) for each in (first, second)]
    return Pair(told[0], told[1], tuple(found[:MOST]), more=len(found) > MOST)


async def _told(side: Side, entries: Sequence[_Entry]) -> tuple[Told, ...]:
    found = [await side.get(each.number) for each in entries]
    return tuple([Told(each.index, exhibits.summary(each)) for each in found])


def _digest(said: bytes) -> bytes:
    return hashlib.sha256(said).digest()[:16]


def _differences(first: Held, second: Held, rules: Rules, *, headers: bool) -> Iterator[Difference]:
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
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
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
