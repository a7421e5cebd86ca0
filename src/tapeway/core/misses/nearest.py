"""The recordings that come nearest to a request that none of them answers.

Reading and comparing documents is dear, so the few that are worth it are picked by what comparing
bytes can tell: first those that say the same at a few places or are about as long, within a budget,
then of these the ones that share the most pieces. All of it is a function of the recordings and their order.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

from tapeway.core.json_text import Json
from tapeway.core.matching.document import document
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.differences import Difference, common_head, differences
from tapeway.core.model.interaction import (
    AnyInteraction,
    Interaction,
    exchange_of,
)
from tapeway.core.model.messages import Request

MOST_DIFFERENCES = 200
"""Further ones between two documents are not looked for."""

LARGEST = 4 * 1024 * 1024
"""Larger bodies are not compared: reading them would keep the process from everything else."""

_SCORED = 1000
_SCORED_BYTES = 256 * 1024
_COMPARED = 8
_COMPARED_BYTES = 160 * 1024
_PROBE = 24
_FIRST = 1000.0
_PIECE = 48
_WEIGHED = 16
_WORDS = 8192

_TARGET = re.compile(r"[/?&]")


@dataclass(frozen=True, slots=True)
class ComparedRecording:
    """A recording and what sets its request apart from another one."""

    interaction: Interaction
    differences: tuple[Difference, ...]

    @property
    def index(self) -> int:
        return self.interaction.index


def nearest(
    missed: Request, held: Iterable[AnyInteraction], rules: Rules, most: int = 3
) -> tuple[ComparedRecording, ...]:
    """The recordings least different from a redacted request, the nearest one first.

    Those of the same route, method and path, or else of another route, or else any.
    """
    if len(missed.body) > LARGEST:
        return ()
    asked = document(missed, rules)
    found = [
        ComparedRecording(each, _differences(each.request, missed, asked, rules))
        for each in _worth_comparing(missed, _same_endpoint(missed, held, rules))
    ]
    return tuple(sorted(found, key=lambda each: distance(each.differences))[:most])


def compared(recorded: Request, missed: Request, rules: Rules) -> tuple[Difference, ...]:
    """What sets two requests apart under these rules, by route and then by document."""
    return _differences(recorded, missed, document(missed, rules), rules)


def distance(found: Sequence[Difference]) -> float:
    """How far apart differences put two requests: at most their number."""
    weighed = found[:_WEIGHED]
    return sum(map(_weight, weighed)) + len(found) - len(weighed)


def _differences(
    recorded: Request, missed: Request, asked: dict[str, Json], rules: Rules
) -> tuple[Difference, ...]:
    route: tuple[Difference, ...] = ()
    # What AgentTape recorded of an SDK was asked for on no route.
    if recorded.route and recorded.route != missed.route:
        route = (Difference(("route",), recorded.route, missed.route),)
    return route + differences(document(recorded, rules), asked, MOST_DIFFERENCES)


def _same_endpoint(
    missed: Request, held: Iterable[AnyInteraction], rules: Rules
) -> list[Interaction]:
    known = [each for each in map(exchange_of, held) if each is not None]
    path = path_of(missed, rules)
    if rules.rewrite:
        there = [each for each in known if path_of(each.request, rules) == path]
    else:
        asked = path + "?"
        there = [
            each
            for each in known
            if (target := each.request.target) == path or target.startswith(asked)
        ]
    there = [each for each in there if each.request.method == missed.method]
    own = [each for each in there if each.request.route in ("", missed.route)]
    return own or there or known


def path_of(request: Request, rules: Rules) -> str:
    """The path as rules rewrite it, not decoded: good enough to tell endpoints apart."""
    path = request.target.partition("?")[0]
    for old, new in rules.rewrite:
        path = path.replace(old, new)
    return path


def _worth_comparing(missed: Request, known: list[Interaction]) -> list[Interaction]:
    """First those that say the same where few others do, then those that are about as long."""
    size, bodies = len(missed.body), [each.request.body for each in known]
    alike = _alike(missed, bodies if size else [each.request.target for each in known])
    ranks = [
        abs(len(body) - size) / LARGEST - _FIRST * share
        for body, share in zip(bodies, alike, strict=True)
    ]
    order = sorted(range(len(known)), key=ranks.__getitem__)
    scored = _within([(at, known[at]) for at in order[:_SCORED]], _SCORED_BYTES)
    likeness = _Likeness(missed)
    scores = [likeness.of(each.request) + alike[at] for at, each in scored]
    best = sorted(range(len(scored)), key=scores.__getitem__, reverse=True)[:_COMPARED]
    return [each for _, each in _within([scored[at] for at in best], _COMPARED_BYTES)]


def _alike(missed: Request, said: Sequence[bytes | str]) -> list[float]:
    """How far bodies, or targets, say what the missed one says, from 0 to 1, judged by four places.

    Two are counted from the beginning and two from the end: whatever was changed at one place,
    what lies before it or behind it stands where it stood. A place where most say the same tells
    little.
    """
    own: bytes | str = missed.body or missed.target
    same = [[text[place] == own[place] for text in said] for place in _places(len(own))]
    a, b, c, d = (log(len(said) / each) if (each := sum(held)) else 0.0 for held in same)
    most = (a + b + c + d) or 1.0
    return [(a * i + b * j + c * k + d * m) / most for i, j, k, m in zip(*same, strict=True)]


def _places(size: int) -> tuple[slice, slice, slice, slice]:
    width = max(1, min(_PROBE, size // 4))
    half, late, middle = size // 2, size * 9 // 10, max(width, size // 2)
    return (
        slice(half, half + width),
        slice(late, late + width),
        slice(-middle, (width - middle) or None),
        slice(-width, None),
    )


def _within(found: Iterable[tuple[int, Interaction]], budget: int) -> list[tuple[int, Interaction]]:
    """As many of the first as the budget of bytes allows, and three of them in any case."""
    kept: list[tuple[int, Interaction]] = []
    for at, each in found:
        size = len(each.request.body)
        if size > LARGEST:
            continue
        budget -= size
        if budget < 0 and len(kept) >= 3:
            break
        kept.append((at, each))
    return kept


class _Likeness:
    """How many pieces of a request another one shares, between 0 and 1."""

    def __init__(self, missed: Request) -> None:
        self._separator = next(
            (each for each in (b'"', b"&") if missed.body.count(each) * _PIECE > len(missed.body)),
            None,  # between words
        )
        self._body = frozenset(missed.body.split(self._separator))
        self._target = frozenset(_TARGET.split(missed.target))
        self._count = len(self._body) + len(self._target)

    def of(self, request: Request) -> float:
        body, target = request.body.split(self._separator), _TARGET.split(request.target)
        shared = len(self._body.intersection(body)) + len(self._target.intersection(target))
        return shared / (self._count + len(body) + len(target) - shared)


def _weight(difference: Difference) -> float:
    """From 0.2 for two texts that differ in one place to 1 for what has nothing in common."""
    recorded, requested = difference.recorded, difference.requested
    if not isinstance(recorded, str) or not isinstance(requested, str):
        return 1.0
    longer = max(len(recorded), len(requested))
    head = common_head(recorded, requested)
    tail = common_head(recorded[head:][::-1], requested[head:][::-1])
    left, right = (set(text[:_WORDS].split()) for text in (recorded, requested))
    words = len(left & right) / max(1, len(left | right))
    return 1.0 - 0.8 * max(words, (head + tail) / longer)
