"""Finds the recordings that are nearest to a missed request.

`neighbours` chooses the candidates. To read and compare their documents is expensive, so candidates
are ranked by bytes. First come recordings with equal bytes at a few places, or else of similar
length. Of these, within a budget, the recordings with the most shared pieces are compared. The result
is ordered by differences, and depends only on the recordings and their order.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from operator import itemgetter

from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json
from tapeway.core.matching.credential_fields import compared_document
from tapeway.core.matching.document import request_document
from tapeway.core.matching.headers.conditions import known_to_differ
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.differences import ABSENT, Difference, common_prefix, differences
from tapeway.core.misses.neighbours import has_similar_path
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import Request
from tapeway.core.text import no_pause

MOST_DIFFERENCES = 200
"""Further differences between two documents are not searched for."""

LARGEST = 4 * 1024 * 1024
"""Larger bodies are not compared: reading them would block the process."""

_MOST_SCORED_BYTES = 256 * 1024
_MOST_COMPARED = 8
_MOST_COMPARED_BYTES = 160 * 1024
_LEAST_OF_ANY_SIZE = 3
"""Recordings that are scored or compared even if they exceed the budget of bytes."""

_PROBE_LENGTH = 24
_PROBE_WEIGHT = 1000.0
"""Equal bytes at the probed places outweigh any difference in length."""

_SHORT_PIECE = 48
"""A separator splits a body well if pieces are shorter than this on average."""

_MOST_WEIGHED = 16
_MOST_TEXT_WEIGHED = 8192

_TARGET_SEPARATORS = re.compile(r"[/?&]")


@dataclass(frozen=True, slots=True)
class ComparedRecording:
    """A recording, and the differences between its request and the missed request."""

    interaction: Interaction
    differences: tuple[Difference, ...]

    @property
    def index(self) -> int:
        return self.interaction.index


def nearest(
    missed: Request,
    recordings: Iterable[AnyInteraction],
    rules: Rules,
    most: int = 3,
    step: Callable[[], None] = no_pause,
) -> tuple[ComparedRecording, ...]:
    """The recordings that differ least from a redacted request, the nearest first.

    Recordings of equal route, method and path; or else of any route; or else of equal method and a
    path that differs in an identifier or a version. Anything else is a different call. `step` is
    called after each recording that is read or compared.
    """
    if len(missed.body) > LARGEST:
        return ()
    asked = compared_document(missed, rules)
    ranked: list[tuple[float, ComparedRecording]] = []
    for recording in _worth_comparing(missed, _same_endpoint(missed, recordings, rules, step)):
        differing = _differences(recording.request, missed, asked, rules)
        ranked.append((distance(differing), ComparedRecording(recording, differing)))
        step()
    ranked.sort(key=itemgetter(0))
    return tuple([compared for _, compared in ranked[:most]])


def request_differences(recorded: Request, missed: Request, rules: Rules) -> tuple[Difference, ...]:
    """The differences between two requests under some rules: in the route, then in the document."""
    return _differences(recorded, missed, compared_document(missed, rules), rules)


def distance(listed: Sequence[Difference]) -> float:
    """How far apart differences put two requests: at most their number."""
    weighed = listed[:_MOST_WEIGHED]
    return sum(map(_weight, weighed)) + len(listed) - len(weighed)


def path_of(request: Request, rules: Rules) -> str:
    """The path after the rules' rewrites, not decoded: good enough to distinguish endpoints."""
    path = request.target.partition("?")[0]
    for old, new in rules.rewrite:
        path = path.replace(old, new)
    return path


def _differences(
    recorded: Request, missed: Request, asked: dict[str, Json], rules: Rules
) -> tuple[Difference, ...]:
    route: tuple[Difference, ...] = ()
    # AgentTape's recordings of SDK calls have no route.
    if recorded.route and recorded.route != missed.route:
        route = (Difference(("route",), recorded.route, missed.route),)
    compared = compared_document(recorded, rules, recorded=True)
    found_differences = route + differences(compared, asked, MOST_DIFFERENCES)
    found_differences += tuple(_varied(recorded, missed, rules))
    if found_differences:
        return found_differences
    # The requests differ only in the values of credential fields.
    whole = request_document(recorded, rules), request_document(missed, rules)
    return differences(*whole, MOST_DIFFERENCES)


def _varied(recorded: Request, missed: Request, rules: Rules) -> Iterator[Difference]:
    """The differences in the headers on which the recorded answer depends."""
    for name in known_to_differ(recorded, missed, rules.ignore_vary):
        one, other = [find_header(request.headers, name.encode()) for request in (recorded, missed)]
        yield Difference(
            ("headers", name),
            ABSENT if one is None else one.decode("latin-1"),
            ABSENT if other is None else other.decode("latin-1"),
            varied=True,
        )


def _same_endpoint(
    missed: Request,
    recordings: Iterable[AnyInteraction],
    rules: Rules,
    step: Callable[[], None],
) -> list[Interaction]:
    wanted = path_of(missed, rules)
    same, similar = list[Interaction](), list[Interaction]()
    for exchange in filter(None, map(exchange_of, recordings)):
        # Here a recording in a file is read.
        path = path_of(exchange.request, rules)
        if exchange.request.method == missed.method:
            if path == wanted:
                same.append(exchange)
            elif has_similar_path(path, wanted):
                similar.append(exchange)
        step()
    same_route = [exchange for exchange in same if exchange.request.route in ("", missed.route)]
    return same_route or same or similar


def _worth_comparing(missed: Request, recordings: list[Interaction]) -> list[Interaction]:
    size, bodies = len(missed.body), [recording.request.body for recording in recordings]
    likeness = _probed(
        missed, bodies if size else [recording.request.target for recording in recordings]
    )
    ranks = [
        abs(len(body) - size) / LARGEST - _PROBE_WEIGHT * share
        for body, share in zip(bodies, likeness, strict=True)
    ]
    order = sorted(range(len(recordings)), key=ranks.__getitem__)
    scored = _within_budget([(at, recordings[at]) for at in order], _MOST_SCORED_BYTES)
    pieces = _SharedPieces(missed)
    scores = [pieces.share(exchange.request) + likeness[at] for at, exchange in scored]
    best = sorted(range(len(scored)), key=scores.__getitem__, reverse=True)[:_MOST_COMPARED]
    return [
        exchange
        for _, exchange in _within_budget([scored[at] for at in best], _MOST_COMPARED_BYTES)
    ]


def _probed(missed: Request, texts: Sequence[bytes | str]) -> list[float]:
    """The share of the missed body (or target) in each text at four places, from 0 to 1.

    Two places are counted from the beginning and two from the end: if there is one insertion, the
    text before or after kept the place. A place where most texts are equal counts little.
    """
    own: bytes | str = missed.body or missed.target
    equal = [[text[piece] == own[piece] for text in texts] for piece in _places(len(own))]
    a, b, c, d = (log(len(texts) / count) if (count := sum(flags)) else 0.0 for flags in equal)
    most = (a + b + c + d) or 1.0
    return [(a * i + b * j + c * k + d * m) / most for i, j, k, m in zip(*equal, strict=True)]


def _places(size: int) -> tuple[slice, slice, slice, slice]:
    width = max(1, min(_PROBE_LENGTH, size // 4))
    half, late, from_end = size // 2, size * 9 // 10, max(width, size // 2)
    return (
        slice(half, half + width),
        slice(late, late + width),
        slice(-from_end, (width - from_end) or None),
        slice(-width, None),
    )


def _within_budget(
    numbered: Iterable[tuple[int, Interaction]], budget: int
) -> list[tuple[int, Interaction]]:
    """As many of the first as the budget of bytes allows, and three of them in any case."""
    kept: list[tuple[int, Interaction]] = []
    for at, exchange in numbered:
        size = len(exchange.request.body)
        if size > LARGEST:
            continue
        budget -= size
        if budget < 0 and len(kept) >= _LEAST_OF_ANY_SIZE:
            break
        kept.append((at, exchange))
    return kept


class _SharedPieces:
    """Counts the pieces of body and target that a request shares with the missed request."""

    def __init__(self, missed: Request) -> None:
        body = missed.body
        self._separator = next(
            (
                separator
                for separator in (b'"', b"&")
                if body.count(separator) * _SHORT_PIECE > len(body)
            ),
            None,  # between words
        )
        self._body = frozenset(body.split(self._separator))
        self._target = frozenset(_TARGET_SEPARATORS.split(missed.target))
        self._count = len(self._body) + len(self._target)

    def share(self, request: Request) -> float:
        """The share of pieces that are in both, from 0 to 1."""
        body = request.body.split(self._separator)
        target = _TARGET_SEPARATORS.split(request.target)
        shared = len(self._body.intersection(body)) + len(self._target.intersection(target))
        return shared / (self._count + len(body) + len(target) - shared)


def _weight(difference: Difference) -> float:
    """From 0.2 for two texts that differ at one place to 1 for values with nothing in common."""
    recorded, requested = difference.recorded, difference.requested
    if not isinstance(recorded, str) or not isinstance(requested, str):
        return 1.0
    longer = max(len(recorded), len(requested))
    head = common_prefix(recorded, requested)
    tail = common_prefix(recorded[head:][::-1], requested[head:][::-1])
    left, right = (set(text[:_MOST_TEXT_WEIGHED].split()) for text in (recorded, requested))
    words = len(left & right) / max(1, len(left | right))
    return 1.0 - 0.8 * max(words, (head + tail) / longer)
