"""The recordings that come nearest to a request that none of them answers.

Reading and comparing documents is dear, so the few that are worth it are picked by what comparing
bytes can tell: first those that end alike or are about as long, within a budget, then of these the
ones that share the most pieces. All of it is a function of the recordings and their order.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tapeway.core.differences import Difference, common_head, differences
from tapeway.core.json_text import Json
from tapeway.core.model import ForeignInteraction, Interaction, Request
from tapeway.core.rules import Rules
from tapeway.core.subject import document

MOST_DIFFERENCES = 200
"""Further ones between two documents are not looked for."""

LARGEST = 4 * 1024 * 1024
"""Larger bodies are not compared: reading them would keep the process from everything else."""

_SCORED = 1000
_SCORED_BYTES = 1024 * 1024
_COMPARED = 8
_COMPARED_BYTES = 256 * 1024
_TAIL = 64
_PIECE = 48
_WEIGHED = 16
_WORDS = 8192

_TARGET = re.compile(r"[/?&]")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A recording and what sets its request apart from another one."""

    interaction: Interaction
    differences: tuple[Difference, ...]

    @property
    def index(self) -> int:
        return self.interaction.index


def nearest(
    missed: Request, held: Iterable[Interaction | ForeignInteraction], rules: Rules, most: int = 3
) -> tuple[Neighbour, ...]:
    """The recordings least different from a redacted request, the nearest one first.

    Those of the same route, method and path, or else of another route, or else any.
    """
    if len(missed.body) > LARGEST:
        return ()
    asked = document(missed, rules)
    found = [
        Neighbour(each, _differences(each.request, missed, asked, rules))
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
    if recorded.route != missed.route:
        route = (Difference(("route",), recorded.route, missed.route),)
    return route + differences(document(recorded, rules), asked, MOST_DIFFERENCES)


def _same_endpoint(
    missed: Request, held: Iterable[Interaction | ForeignInteraction], rules: Rules
) -> list[Interaction]:
    method, path = missed.method, path_of(missed, rules)
    known = [
        each for each in held if isinstance(each, Interaction) and len(each.request.body) <= LARGEST
    ]
    there = [
        each
        for each in known
        if each.request.method == method and path_of(each.request, rules) == path
    ]
    return [each for each in there if each.request.route == missed.route] or there or known


def path_of(request: Request, rules: Rules) -> str:
    """The path as rules rewrite it, not decoded: good enough to tell endpoints apart."""
    path = request.target.partition("?")[0]
    for old, new in rules.rewrite:
        path = path.replace(old, new)
    return path


def _worth_comparing(missed: Request, known: list[Interaction]) -> list[Interaction]:
    size, tail = len(missed.body), missed.body[-_TAIL:]
    # One that ends otherwise comes behind all that end alike, whatever their length.
    ranks = [
        abs(len(each.request.body) - size) + (0 if each.request.body.endswith(tail) else LARGEST)
        for each in known
    ]
    order = sorted(range(len(known)), key=ranks.__getitem__)
    scored = _within([known[at] for at in order[:_SCORED]], _SCORED_BYTES)
    separator = _separator(missed.body)
    pieces = frozenset(missed.body.split(separator)), frozenset(_TARGET.split(missed.target))
    scores = [_likeness(each.request, *pieces, separator) for each in scored]
    best = sorted(range(len(scored)), key=scores.__getitem__, reverse=True)[:_COMPARED]
    return _within([scored[at] for at in best], _COMPARED_BYTES)


def _within(found: Sequence[Interaction], budget: int) -> list[Interaction]:
    """As many of the first as the budget of bytes allows, and three of them in any case."""
    kept: list[Interaction] = []
    for each in found:
        budget -= len(each.request.body)
        if budget < 0 and len(kept) >= 3:
            break
        kept.append(each)
    return kept


def _separator(body: bytes) -> bytes | None:
    """What cuts a body into telling pieces: quotes, ampersands, or the space between words."""
    for each in (b'"', b"&"):
        if body.count(each) * _PIECE > len(body):
            return each
    return None


def _likeness(
    request: Request,
    body: frozenset[bytes],
    target: frozenset[str],
    separator: bytes | None,
) -> float:
    theirs, where = request.body.split(separator), _TARGET.split(request.target)
    shared = len(body.intersection(theirs)) + len(target.intersection(where))
    return shared / (len(body) + len(target) + len(theirs) + len(where) - shared)


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
