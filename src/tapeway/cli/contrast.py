"""Two cassettes laid beside each other: which recordings stand for which, and where they differ."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tapeway.core.differences import Difference, differences
from tapeway.core.json_text import Json, NotJson, canonical, parse
from tapeway.core.matching import request_key
from tapeway.core.model import ForeignInteraction, Interaction, Response, StoredCassette
from tapeway.core.nearest import compared, path_of
from tapeway.core.rules import Rules
from tapeway.providers.documents import documents

MOST = 20
"""Differences of one pair that are told."""

Held = Interaction | ForeignInteraction
_OWN = ("index", "latency_ms", "match_key", "request")
"""What is not a difference between two tools' records of one call, or is told apart."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two recordings of one call, and where they differ; `more` beyond those that are told."""

    first: Held
    second: Held
    differences: tuple[Difference, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Contrast:
    """How two cassettes compare."""

    equal: int
    different: tuple[Pair, ...]
    only_first: tuple[Held, ...]
    only_second: tuple[Held, ...]

    @property
    def same(self) -> bool:
        return not (self.different or self.only_first or self.only_second)


def contrast(
    first: StoredCassette, second: StoredCassette, rules: Rules, *, headers: bool = False
) -> Contrast:
    """Pairs recordings of equal requests in their order, then those of one endpoint in theirs."""

    def exactly(item: Held) -> object:
        if isinstance(item, Interaction):
            return request_key(item.request, rules)
        return _kind(item), canonical(item.document.get("request"))

    def roughly(item: Held) -> object:
        if isinstance(item, Interaction):
            return item.request.route, item.request.method, path_of(item.request, rules)
        return _kind(item)

    pairs, left, right = _paired(first.interactions, second.interactions, exactly)
    others, left, right = _paired(left, right, roughly)
    found = [_pair(one, other, rules, headers=headers) for one, other in [*pairs, *others]]
    different = sorted(
        [each for each in found if each.differences], key=lambda each: each.first.index
    )
    return Contrast(len(found) - len(different), tuple(different), tuple(left), tuple(right))


def _paired(
    left: Sequence[Held], right: Sequence[Held], of: Callable[[Held], object]
) -> tuple[list[tuple[Held, Held]], list[Held], list[Held]]:
    """The pairs, and who found nobody on either side."""
    waiting: dict[object, list[Held]] = defaultdict(list)
    for each in reversed(right):
        waiting[of(each)].append(each)
    pairs: list[tuple[Held, Held]] = []
    alone: list[Held] = []
    for each in left:
        if found := waiting.get(of(each)):
            pairs.append((each, found.pop()))
        else:
            alone.append(each)
    taken = {id(other) for _, other in pairs}
    return pairs, alone, [each for each in right if id(each) not in taken]


def _pair(first: Held, second: Held, rules: Rules, *, headers: bool) -> Pair:
    found = list(islice(_differences(first, second, rules, headers=headers), MOST + 1))
    return Pair(first, second, tuple(found[:MOST]), more=len(found) > MOST)


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
