"""Two takes of the same run laid beside each other: what differed, and the rules that explain it.

What recorded answers said, to tell what a client sent back of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import orjson

from tapeway.core.json_text import Json
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import NO_RULES, Rules, merged_rules
from tapeway.core.misses.differences import Difference
from tapeway.core.misses.nearest import compared, distance, path_of
from tapeway.core.misses.suggestion import addition
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import Interaction

_PIECE = 8
"""Shorter texts stand in a long answer by chance, and count only where one value is just that."""

_MOST_PATHS = 50
"""Of a whole run; a person still reads that many."""

_MOST_TRIED = 2500
"""Pairs of calls to one endpoint that are tried; beyond that calls are paired in their order."""


class AnswerTexts:
    """The texts in the answers of one take."""

    def __init__(self, calls: Sequence[Interaction]) -> None:
        self._calls = calls
        self._texts = lru_cache(maxsize=None)(_texts)

    def said(self, text: str, *, before: int) -> bool:
        """Whether an answer recorded before this index said it, whole or over a stream's events."""
        for call in self._calls:
            if call.index >= before:
                break
            leaves, running = self._texts(call.response.body)
            if text in leaves or (len(text) >= _PIECE and text in running):
                return True
        return False


def _texts(body: bytes) -> tuple[frozenset[str], str]:
    """Every text in an answer, and those under one key run together as a stream's pieces belong."""
    by_key: dict[str, list[str]] = {}
    for value in _values(body):
        for key, text in _leaves("", value):
            by_key.setdefault(key, []).append(text)
    leaves = frozenset(text for texts in by_key.values() for text in texts)
    return leaves, "\0".join("".join(texts) for texts in by_key.values())


def _values(body: bytes) -> Iterator[Json]:
    try:
        yield orjson.loads(body)
    except orjson.JSONDecodeError:
        for line in body.splitlines():
            try:
                yield orjson.loads(line.removeprefix(b"data:"))
            except orjson.JSONDecodeError:
                continue


def _leaves(key: str, value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(name, each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(key, each)


@dataclass(frozen=True, slots=True)
class CallPair:
    """A call of the first take and the one of the second that stands for it."""

    first: Interaction
    second: Interaction
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Differing:
    """A path at which calls differed, in how many of them, and one of them as an example.

    `echoed` says that both values stood in answers of their own take: replayed, the app gets the
    answers of one take and sends back what stood in them.
    """

    path: str
    calls: int
    example: Difference
    echoed: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of the calls of two takes.

    `rules` are those to add: under them the second take's requests are equal to the first's, but
    for what is echoed and for the pairs that are `unexplained`.
    """

    equal: int
    paths: tuple[Differing, ...]
    rules: Rules
    unexplained: tuple[CallPair, ...]
    only_first: tuple[Interaction, ...]
    only_second: tuple[Interaction, ...]

    @property
    def explained(self) -> bool:
        """Whether a run like the second would be answered from the first, the rules added."""
        return not (self.unexplained or self.only_second)


def compare(first: StoredCassette, second: StoredCassette, rules: Rules = NO_RULES) -> Comparison:
    """What differed between two takes and the rules to add to those in force.

    Calls are paired by what they are equal in: first those with one key, whatever their order,
    then the least different ones of an endpoint.
    """
    left, right = _calls(first), _calls(second)
    equal, left, right = _without_equal(left, right, rules)
    pairs, left, right = _paired(left, right, rules)
    echoes = _Echoes(first, second)
    added = _rules_for(pairs, echoes, rules)
    in_force = merged_rules(rules, added)
    return Comparison(
        equal=equal,
        paths=tuple(_differing(pairs, echoes)),
        rules=added,
        unexplained=tuple(each for each in pairs if not echoes.explain(each, in_force)),
        only_first=tuple(left),
        only_second=tuple(right),
    )


class _Echoes:
    """Tells what a take sent back of the answers it got."""

    def __init__(self, first: StoredCassette, second: StoredCassette) -> None:
        self._first = AnswerTexts(_calls(first))
        self._second = AnswerTexts(_calls(second))

    def covers(self, difference: Difference, pair: CallPair) -> bool:
        recorded, requested = difference.recorded, difference.requested
        if not isinstance(recorded, str) or not isinstance(requested, str):
            return False
        return self._first.said(recorded, before=pair.first.index) and self._second.said(
            requested, before=pair.second.index
        )

    def without(self, pair: CallPair) -> list[Difference]:
        return [each for each in pair.differences if not self.covers(each, pair)]

    def explain(self, pair: CallPair, rules: Rules) -> bool:
        """Whether nothing but echoes is left of a pair's differences under these rules."""
        left = compared(pair.first.request, pair.second.request, rules)
        return all(self.covers(each, pair) for each in left)


def _calls(stored: StoredCassette) -> list[Interaction]:
    return [each for each in stored.interactions if isinstance(each, Interaction)]


def _without_equal(
    left: Sequence[Interaction], right: Sequence[Interaction], rules: Rules
) -> tuple[int, list[Interaction], list[Interaction]]:
    waiting: dict[bytes, list[Interaction]] = defaultdict(list)
    for each in right:
        waiting[request_key(each.request, rules)].append(each)
    kept: list[Interaction] = []
    for each in left:
        # What stands for several turns in one take may stand for fewer in the other.
        if found := waiting.get(request_key(each.request, rules)):
            found.pop(0)
        else:
            kept.append(each)
    others = [each for found in waiting.values() for each in found]
    return len(left) - len(kept), kept, sorted(others, key=lambda each: each.index)


def _paired(
    left: list[Interaction], right: list[Interaction], rules: Rules
) -> tuple[list[CallPair], list[Interaction], list[Interaction]]:
    """Pairs of one endpoint, then of paths as long as each other; and who found nobody."""
    pairs: list[CallPair] = []
    for endpoint in (_exactly, _roughly):
        groups: dict[tuple[object, ...], tuple[list[Interaction], list[Interaction]]] = {}
        for side, calls in enumerate((left, right)):
            for each in calls:
                groups.setdefault(endpoint(each, rules), ([], []))[side].append(each)
        for these, those in groups.values():
            pairs += _nearest_pairs(these, those, rules)
        taken = {id(each.first) for each in pairs} | {id(each.second) for each in pairs}
        left = [each for each in left if id(each) not in taken]
        right = [each for each in right if id(each) not in taken]
    return sorted(pairs, key=lambda pair: pair.first.index), left, right


def _exactly(call: Interaction, rules: Rules) -> tuple[object, ...]:
    request = call.request
    return request.route, request.method, path_of(request, rules)


def _roughly(call: Interaction, rules: Rules) -> tuple[object, ...]:
    request = call.request
    return request.route, request.method, path_of(request, rules).count("/")


def _nearest_pairs(
    left: Sequence[Interaction], right: Sequence[Interaction], rules: Rules
) -> Iterator[CallPair]:
    if len(left) * len(right) > _MOST_TRIED:
        for one, other in zip(left, right, strict=False):
            yield _pair(one, other, rules)
        return
    tried = [_pair(one, other, rules) for one in left for other in right]
    taken: set[int] = set()
    for pair in sorted(tried, key=lambda pair: distance(pair.differences)):
        if not taken & (both := {id(pair.first), id(pair.second)}):
            taken |= both
            yield pair


def _pair(first: Interaction, second: Interaction, rules: Rules) -> CallPair:
    return CallPair(first, second, compared(first.request, second.request, rules))


def _rules_for(pairs: Sequence[CallPair], echoes: _Echoes, rules: Rules) -> Rules:
    """One set of rules for all pairs that rules can explain, and none for the others."""
    explained: list[Difference] = []
    for pair in pairs:
        left = echoes.without(pair)
        if left and echoes.explain(pair, merged_rules(rules, addition(left, rules))):
            explained += left
    return addition(explained, rules, _MOST_PATHS) if explained else NO_RULES


def _differing(pairs: Iterable[CallPair], echoes: _Echoes) -> list[Differing]:
    found: dict[tuple[str, bool], list[Difference]] = {}
    for pair in pairs:
        for each in pair.differences:
            found.setdefault((each.path, echoes.covers(each, pair)), []).append(each)
    differing = [
        Differing(path, len(each), each[0], echoed) for (path, echoed), each in found.items()
    ]
    return sorted(differing, key=lambda each: -each.calls)
