"""Compares two recordings of one run: the differences, and the rules that make both equal.

A value that differs because each run sends back text of earlier answers is an echo. An echo needs no
rule, since a replayed run gets the recorded answers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tapeway.core.json_text import Json, peek_json
from tapeway.core.matching.credential_fields import compared_key, without_digests
from tapeway.core.matching.headers.conditions import known_to_differ
from tapeway.core.matching.rules import NO_RULES, Rules, merged_rules
from tapeway.core.misses.deciding_fields import reason_against_rules
from tapeway.core.misses.differences import Difference
from tapeway.core.misses.nearest import distance, path_of, request_differences
from tapeway.core.misses.suggestion import candidate_rules, confused_recordings, refusal_text
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import Interaction

_SHORTEST_PART = 8
"""A shorter text may be in a long answer by chance, and is an echo only of a whole value."""

_MOST_PATHS = 50
"""Paths to ignore for a whole run."""

_MOST_PAIRS_TRIED = 2500
"""With more possible pairs of calls to one endpoint, calls are paired in order."""


@dataclass(frozen=True, slots=True)
class CallPair:
    """A call of the first run and the corresponding call of the second."""

    first: Interaction
    second: Interaction
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class DifferingPath:
    """A path at which calls differed, the number of these calls, and one of them as an example.

    `echoed` means that each run sent back text of earlier answers.
    """

    path: str
    calls: int
    example: Difference
    echoed: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of the calls of two runs.

    `rules` are to be added. Under them the requests of the second run equal the first run's,
    except for echoes and `unexplained` pairs. `refusals` name the rules that are left out
    because they would make different calls of one run equal, or the fields that no rule ignores.
    """

    equal: int
    paths: tuple[DifferingPath, ...]
    rules: Rules
    unexplained: tuple[CallPair, ...]
    only_first: tuple[Interaction, ...]
    only_second: tuple[Interaction, ...]
    refusals: tuple[str, ...] = ()

    @property
    def explained(self) -> bool:
        """Whether a run like the second could be replayed from the first with the rules added."""
        return not (self.unexplained or self.only_second)


def compare(first: StoredCassette, second: StoredCassette, rules: Rules = NO_RULES) -> Comparison:
    """Compare two runs: the differences, and the rules to add.

    Calls with the same key are equal, in any order. Then the calls of one endpoint are paired, the
    least different ones first.
    """
    runs = _compared(first), _compared(second)
    equal, left, right = _without_equal(*runs, rules)
    pairs, left, right = _paired(left, right, rules)
    echoes = _Echoes(first, second)
    safety = _Safety(runs, rules)
    added = _rules_for(pairs, echoes, rules, safety)
    in_force = merged_rules(rules, added)
    unexplained = tuple(pair for pair in pairs if not echoes.explain(pair, in_force))
    return Comparison(
        equal=equal,
        paths=tuple(_differing_paths(pairs, echoes)),
        rules=added,
        unexplained=unexplained,
        only_first=tuple(left),
        only_second=tuple(right),
        refusals=tuple(dict.fromkeys([*safety.refusals, *_reasons(unexplained, echoes)])),
    )


def _reasons(pairs: Iterable[CallPair], echoes: "_Echoes") -> Iterator[str]:
    reasons = (reason_against_rules(echoes.without(pair)) for pair in pairs)
    return (reason for reason in reasons if reason is not None)


class _Safety:
    """Decides whether rules keep different calls of one run apart."""

    def __init__(self, runs: Iterable[Sequence[Interaction]], rules: Rules) -> None:
        self._runs = tuple(runs)
        self._rules = rules
        self._known: dict[Rules, str | None] = {}

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why rules were refused."""
        return tuple(dict.fromkeys([value for value in self._known.values() if value is not None]))

    def allows(self, added: Rules) -> bool:
        if added not in self._known:
            self._known[added] = self._refusal(added)
        return self._known[added] is None

    def _refusal(self, added: Rules) -> str | None:
        for calls in self._runs:
            if (confused := confused_recordings(calls, self._rules, added)) is not None:
                return refusal_text(added, confused)
        return None


class _Echoes:
    """Decides which differences are echoes: text of a run's answers, sent back."""

    def __init__(self, first: StoredCassette, second: StoredCassette) -> None:
        self._first = AnswerTexts(_calls(first))
        self._second = AnswerTexts(_calls(second))

    def covers(self, difference: Difference, pair: CallPair) -> bool:
        recorded, requested = difference.recorded, difference.requested
        if not isinstance(recorded, str) or not isinstance(requested, str):
            return False
        return self._first.contains(recorded, before=pair.first.index) and self._second.contains(
            requested, before=pair.second.index
        )

    def without(self, pair: CallPair) -> list[Difference]:
        return [difference for difference in pair.differences if not self.covers(difference, pair)]

    def explain(self, pair: CallPair, rules: Rules) -> bool:
        """Whether only echoes are left of a pair's differences under these rules."""
        left = request_differences(pair.first.request, pair.second.request, rules)
        return all(self.covers(difference, pair) for difference in left)


class AnswerTexts:
    """The texts in the answers of one run."""

    def __init__(self, calls: Sequence[Interaction]) -> None:
        self._calls = calls
        self._texts = lru_cache(maxsize=None)(_texts)

    def contains(self, text: str, *, before: int) -> bool:
        """Whether an answer before an index has a text, whole or spread over a stream's events."""
        for call in self._calls:
            if call.index >= before:
                break
            values, joined = self._texts(call.response.body)
            if text in values or (len(text) >= _SHORTEST_PART and text in joined):
                return True
        return False


def _texts(body: bytes) -> tuple[frozenset[str], str]:
    """Every text in an answer, and those of each key joined, as the pieces of a stream are."""
    by_key: dict[str, list[str]] = {}
    for value in _values(body):
        for key, text in _texts_in("", value):
            by_key.setdefault(key, []).append(text)
    values = frozenset(text for texts in by_key.values() for text in texts)
    return values, "\0".join("".join(texts) for texts in by_key.values())


def _values(body: bytes) -> Iterator[Json]:
    if (value := peek_json(body)) is not None:
        yield value
    else:
        for line in body.splitlines():
            yield peek_json(line.removeprefix(b"data:"))


def _texts_in(key: str, value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _texts_in(name, member)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(key, item)


def _calls(stored: StoredCassette) -> list[Interaction]:
    return [
        interaction for interaction in stored.interactions if isinstance(interaction, Interaction)
    ]


def _compared(stored: StoredCassette) -> list[Interaction]:
    """The calls of a cassette; one secret has another placeholder in each."""
    return [replace(call, request=without_digests(call.request)) for call in _calls(stored)]


def _without_equal(
    left: Sequence[Interaction], right: Sequence[Interaction], rules: Rules
) -> tuple[int, list[Interaction], list[Interaction]]:
    waiting: dict[bytes, list[Interaction]] = defaultdict(list)
    for interaction in right:
        waiting[compared_key(interaction.request, rules, recorded=True)].append(interaction)
    kept: list[Interaction] = []
    for interaction in left:
        # One run may repeat a request more often.
        candidates = waiting.get(compared_key(interaction.request, rules, recorded=True), [])
        answered = (
            at for at, other in enumerate(candidates) if _answers(interaction, other, rules)
        )
        if (at := next(answered, None)) is None:
            kept.append(interaction)
        else:
            del candidates[at]
    others = [interaction for unpaired in waiting.values() for interaction in unpaired]
    return len(left) - len(kept), kept, sorted(others, key=lambda interaction: interaction.index)


def _answers(recorded: Interaction, asked: Interaction, rules: Rules) -> bool:
    """Whether headers let a recording answer the request of a recording with an equal key."""
    return not known_to_differ(recorded.request, asked.request, rules.ignore_vary)


def _paired(
    left: list[Interaction], right: list[Interaction], rules: Rules
) -> tuple[list[CallPair], list[Interaction], list[Interaction]]:
    """Pairs of the same path, then of paths of the same length; and the calls left over."""
    pairs: list[CallPair] = []
    for endpoint in (_endpoint, _endpoint_shape):
        groups: dict[tuple[object, ...], tuple[list[Interaction], list[Interaction]]] = {}
        for side, calls in enumerate((left, right)):
            for call in calls:
                groups.setdefault(endpoint(call, rules), ([], []))[side].append(call)
        for firsts, seconds in groups.values():
            pairs += _nearest_pairs(firsts, seconds, rules)
        taken = {id(pair.first) for pair in pairs} | {id(pair.second) for pair in pairs}
        left = [interaction for interaction in left if id(interaction) not in taken]
        right = [interaction for interaction in right if id(interaction) not in taken]
    return sorted(pairs, key=lambda pair: pair.first.index), left, right


def _endpoint(call: Interaction, rules: Rules) -> tuple[object, ...]:
    request = call.request
    return request.route, request.method, path_of(request, rules)


def _endpoint_shape(call: Interaction, rules: Rules) -> tuple[object, ...]:
    request = call.request
    return request.route, request.method, path_of(request, rules).count("/")


def _nearest_pairs(
    left: Sequence[Interaction], right: Sequence[Interaction], rules: Rules
) -> Iterator[CallPair]:
    if len(left) * len(right) > _MOST_PAIRS_TRIED:
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
    return CallPair(first, second, request_differences(first.request, second.request, rules))


def _rules_for(pairs: Sequence[CallPair], echoes: _Echoes, rules: Rules, safety: _Safety) -> Rules:
    """The rules for all pairs that rules can make equal; other pairs need no rules."""
    explained: list[Difference] = []
    for pair in pairs:
        left = echoes.without(pair)
        if not left:
            continue
        own = candidate_rules(left, rules)
        if own and echoes.explain(pair, merged_rules(rules, own)) and safety.allows(own):
            explained += left
    added = candidate_rules(explained, rules, _MOST_PATHS) if explained else NO_RULES
    # Each rule may keep calls apart alone, and all rules together may not.
    return added if not added or safety.allows(added) else NO_RULES


def _differing_paths(pairs: Iterable[CallPair], echoes: _Echoes) -> list[DifferingPath]:
    by_path: dict[tuple[str, bool], list[Difference]] = {}
    for pair in pairs:
        for difference in pair.differences:
            by_path.setdefault((difference.path, echoes.covers(difference, pair)), []).append(
                difference
            )
    paths = [
        DifferingPath(path, len(values), values[0], echoed)
        for (path, echoed), values in by_path.items()
    ]
    return sorted(paths, key=lambda differing: -differing.calls)
