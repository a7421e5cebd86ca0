"""Compares a missed request with the nearest recording, part by part and leaf by leaf.

Both are shown as matching sees them: under the rules in force, without credential fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tapeway.core.json_text import Json, canonical, dump
from tapeway.core.matching.credential_fields import compared_document, compared_key
from tapeway.core.matching.headers.conditions import is_for
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.differences import Difference, difference_document
from tapeway.core.misses.miss import MissedRequest
from tapeway.core.misses.nearest import MOST_DIFFERENCES, path_of, request_differences
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import LARGE_BODY, Request
from tapeway.core.text import nearest_names

Part = Literal["route", "method", "path", "query", "body", "headers", "repeats"]
Finding = Literal["ok", "differs", "not_compared"]

_MOST_SEARCHED = 1000
_MOST_SEARCHED_BYTES = 8 * 1024 * 1024
_MOST_INDEXES = 5
_MOST_PATHS = 1000
"""Among which the nearest is looked for."""

_NO_HEADERS = "no header that counts"
_NOTHING_NEAR = "there is no recording to compare it with"


@dataclass(frozen=True, slots=True)
class ComparedRequest:
    """A missed request as matching sees it: redacted, under the cassette's rules."""

    document: Mapping[str, object] | None
    """Route, method, path, query, headers, content and body; null if it is too large."""
    size: int
    """Bytes of its body."""
    note: str | None
    """Why the document is not there, or not whole."""


@dataclass(frozen=True, slots=True)
class NearestCompared:
    """The nearest recording as matching sees it, and how the missed request differs."""

    index: int
    document: Mapping[str, object] | None
    note: str | None
    differences: Sequence[Mapping[str, object]]
    """At most 200. Each has `path`; `steps`, the keys and positions that lead there; `recorded_steps`
    if the place in the recording differs; and `recorded` and `requested` where there is a value."""
    more: bool
    """Whether there may be further differences."""


@dataclass(frozen=True, slots=True)
class PartVerdict:
    """Whether a part of a request equals the same part of a recording, and why."""

    part: Part
    verdict: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class Preview:
    """The recordings that would answer a request."""

    answers: tuple[int, ...]
    """Their indexes, in order."""
    searched: int
    complete: bool
    """Whether all recordings of the method were searched."""


def compared(request: Request, rules: Rules, *, recorded: bool = False) -> dict[str, Json]:
    """A request's route and the document that is compared."""
    return {"route": request.route, **compared_document(request, rules, recorded=recorded)}


def shown_document(document: dict[str, Json]) -> tuple[dict[str, Json] | None, str | None]:
    """A document, or None and why it is not shown."""
    size = len(dump(document))
    if size > LARGE_BODY:
        return None, f"it has {size} bytes, more than the {LARGE_BODY} that are shown"
    return document, None


def request_part(missed: MissedRequest, rules: Rules) -> ComparedRequest:
    """The missed request as it was compared."""
    if not missed.is_whole:
        note = f"its body has {missed.size} bytes, too many to be kept"
        head = compared(missed.request, rules)
        return ComparedRequest({**head, "body": None}, missed.size, note)
    document, why = shown_document(compared(missed.request, rules))
    return ComparedRequest(document, missed.size, why)


def nearest_part(missed: MissedRequest, item: Interaction, rules: Rules) -> NearestCompared:
    """The nearest recording, with the request redacted, and the differences to the missed request."""
    document, why = shown_document(compared(item.request, rules, recorded=True))
    differences = _differences(missed, item.request, rules)
    more = len(differences) >= MOST_DIFFERENCES
    return NearestCompared(item.index, document, why, [*map(difference_at, differences)], more)


def difference_at(difference: Difference) -> dict[str, Json]:
    """A difference for people, and its place on both sides as steps into the documents."""
    at = difference.recorded_steps
    return {
        **difference_document(difference),
        "steps": list(difference.steps),
        "recorded_steps": None if at is None else list(at),
    }


def verdicts(
    missed: MissedRequest,
    item: Interaction | None,
    recordings: Iterable[AnyInteraction],
    rules: Rules,
) -> list[PartVerdict]:
    """The verdict on each part of a missed request, compared with the nearest recording, if any.

    Empty where there is no recording at all.
    """
    if item is None:
        searched = list(recordings)
        previews = [*_without_nearest(missed, searched, rules)] if searched else []
        return [*previews, _repeats(missed, equal=False)] if searched or missed.used_up else []
    differences = _differences(missed, item.request, rules)
    asked, held = compared(missed.request, rules), compared(item.request, rules, recorded=True)
    if not item.request.route:
        held["route"] = asked["route"]
    previews = [
        _verdict("route", differences, asked, held),
        *[_verdict(part, differences, asked, held) for part in ("method", "path", "query")],
        _body(missed, differences, asked, held),
        _headers(differences, asked, held),
    ]
    equal = all(rule_preview.verdict != "differs" for rule_preview in previews)
    return [*previews, _repeats(missed, equal=equal)]


def preview(missed: MissedRequest, recordings: Iterable[AnyInteraction], rules: Rules) -> Preview:
    """The recordings that would answer a missed request under some rules; nothing is changed."""
    method, path = missed.request.method, path_of(missed.request, rules)
    calls = [exchange for exchange in map(exchange_of, recordings) if exchange is not None]
    same = [call for call in calls if call.request.method == method]
    same.sort(key=lambda exchange: (path_of(exchange.request, rules) != path, exchange.index))
    asked = compared_key(missed.request, rules)
    indexes: list[int] = []
    searched, left = 0, _MOST_SEARCHED_BYTES
    for exchange in same[:_MOST_SEARCHED]:
        left -= len(exchange.request.body)
        if left < 0:
            break
        searched += 1
        equal = missed.is_whole and compared_key(exchange.request, rules, recorded=True) == asked
        if equal and is_for(exchange, missed.request.headers, rules.ignore_vary):
            indexes.append(exchange.index)
    return Preview(tuple(sorted(indexes)), searched, searched == len(same))


def redacted(item: Interaction, redact: Callable[[Request], Request]) -> Interaction:
    """The recording with a redacted request: other tools and people write secrets into cassettes."""
    clean = redact(item.request)
    return item if clean == item.request else _with_request(item, clean)


def _with_request(item: Interaction, request: Request) -> Interaction:
    return Interaction(item.index, request, item.response, item.match_key, item.latency_ms)


def _differences(missed: MissedRequest, recorded: Request, rules: Rules) -> tuple[Difference, ...]:
    differences = request_differences(recorded, missed.request, rules)
    if missed.is_whole:
        return differences
    return tuple(
        [difference for difference in differences if difference.steps[0] not in ("body", "content")]
    )


def _without_nearest(
    missed: MissedRequest, recordings: Sequence[AnyInteraction], rules: Rules
) -> Iterator[PartVerdict]:
    """The verdicts on a request without a near recording."""
    calls = [exchange.request for exchange in map(exchange_of, recordings) if exchange is not None]
    request, path = missed.request, path_of(missed.request, rules)
    methods = [call for call in calls if call.method == request.method]
    paths = [*dict.fromkeys(path_of(call, rules) for call in methods)]
    known: tuple[tuple[Part, str, bool], ...] = (
        ("route", request.route, any(call.route in ("", request.route) for call in calls)),
        ("method", request.method, bool(methods)),
        ("path", path, path in paths),
    )
    for part, value, is_known in known:
        if part == "path" and not is_known and (near := nearest_names(path, paths[:_MOST_PATHS])):
            yield PartVerdict(part, "differs", f"nothing is recorded with it; {near[0]} is")
        elif is_known:
            yield PartVerdict(part, "ok", f"there are recordings with the {part} {value}")
        else:
            yield PartVerdict(part, "differs", f"nothing is recorded with the {part} {value}")
    rest: tuple[Part, ...] = ("query", "body", "headers")
    for part in rest:
        yield PartVerdict(part, "not_compared", _NOTHING_NEAR)


def _verdict(
    part: Part, differences: Sequence[Difference], asked: dict[str, Json], held: dict[str, Json]
) -> PartVerdict:
    if part not in asked and part not in held:
        return PartVerdict(part, "not_compared", "a rule leaves it out")
    here = [difference for difference in differences if difference.steps[0] == part]
    if here or canonical(asked.get(part)) != canonical(held.get(part)):
        return PartVerdict(part, "differs", _places(part, here))
    return PartVerdict(part, "ok", "equal")


def _body(
    missed: MissedRequest,
    differences: Sequence[Difference],
    asked: dict[str, Json],
    held: dict[str, Json],
) -> PartVerdict:
    if not missed.is_whole:
        return PartVerdict(
            "body", "not_compared", f"it has {missed.size} bytes, too many to be kept"
        )
    if "body" in asked and asked.get("content") != held.get("content"):
        kinds = f"it is read as {asked.get('content')}, the recorded one as {held.get('content')}"
        return PartVerdict("body", "differs", kinds)
    if asked.get("content") == held.get("content") == "empty":
        return PartVerdict("body", "ok", "there is none")
    return _verdict("body", differences, asked, held)


def _headers(
    differences: Sequence[Difference], asked: dict[str, Json], held: dict[str, Json]
) -> PartVerdict:
    if not asked.get("headers") and not held.get("headers"):
        return PartVerdict("headers", "not_compared", _NO_HEADERS)
    return _verdict("headers", differences, asked, held)


def _repeats(missed: MissedRequest, *, equal: bool) -> PartVerdict:
    if missed.used_up:
        indexes = ", ".join([f"#{index}" for index in missed.used_up[:_MOST_INDEXES]])
        more = " …" if len(missed.used_up) > _MOST_INDEXES else ""
        return PartVerdict("repeats", "differs", f"all used up in this take: {indexes}{more}")
    if equal:
        return PartVerdict("repeats", "ok", "a recording is left in this take")
    return PartVerdict("repeats", "not_compared", "no recording of an equal request was used")


def _places(part: Part, here: Sequence[Difference]) -> str:
    if not here:
        return "what its credential fields hold differs"
    first = difference_document(here[0])
    path = str(first["path"])
    if path == part:
        sides = [
            f"{side} {dump(first[side]).decode() if side in first else 'nothing'}"
            for side in ("recorded", "requested")
        ]
        return ", ".join(sides)
    more = f" and {len(here) - 1} more" if len(here) > 1 else ""
    return f"at {path}{more}"
