"""`tapeway cassette verify --live`: asks the services what cassettes hold, and writes nothing.

Only what changes nothing at the service is asked, and only where a route leads: never the address in
a recording, which anybody may have written. The keys are those of the environment.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import OpenStores, locate
from tapeway.core.correlation.ids import issued_ids
from tapeway.core.http.routing import RouteTable, assign_route
from tapeway.core.json_text import Json
from tapeway.core.matching.key import request_key
from tapeway.core.model.interaction import Interaction
from tapeway.errors import TapewayError, UpstreamError
from tapeway.inspection import asking
from tapeway.inspection.drift import Drift, drift
from tapeway.paging import CassetteRef
from tapeway.providers.api_call import ApiCall, describe_call
from tapeway.server.wiring import make_client
from tapeway.settings.options import Settings, resolve_routes
from tapeway.upstream.client import UpstreamClient

_LEVELS: Mapping[str, terminal.Role] = {"error": "bad", "warning": "note", "info": "good"}


@dataclass(frozen=True, slots=True)
class AskedRecording:
    """A recording, and how the form of the answer differs now, or why there is no answer."""

    index: int
    request: str
    failed: str | None = None
    drift: tuple[Drift, ...] = ()


@dataclass(slots=True)
class LiveResult:
    """What was asked of one cassette, and how many recordings were not, by the reason."""

    name: str
    asked: list[AskedRecording] = field(default_factory=list)
    not_asked: Counter[str] = field(default_factory=Counter)
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether something that was to be asked could not be."""
        return self.error is not None or any(recording.failed for recording in self.asked)

    def count(self, level: str) -> int:
        """How many differences there are of one level."""
        drifts = [difference for recording in self.asked for difference in recording.drift]
        return sum([difference.level == level for difference in drifts])


@dataclass(frozen=True, slots=True)
class _Question:
    result: LiveResult
    item: Interaction


class _Questions:
    """The calls to make, at most `budget` in all: first one of each kind, then the rest."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kinds: set[tuple[object, ...]] = set()
        self._first: list[_Question] = []
        self._others: list[_Question] = []

    def add(self, question: _Question, call: ApiCall | None) -> None:
        """Note a question; one beyond the budget is counted as not asked."""
        request = question.item.request
        path = request.target.partition("?")[0] if call is None else call
        kind = (request.route, request.method, path)
        questions = self._others if kind in self._kinds else self._first
        self._kinds.add(kind)
        questions.append(question)
        if len(self._first) + len(self._others) > self._budget:
            left = self._others.pop() if self._others else self._first.pop()
            left.result.not_asked["beyond the budget"] += 1

    def __iter__(self) -> Iterator[_Question]:
        yield from sorted(self._first + self._others, key=lambda question: question.item.index)


async def verify_live(
    names: Sequence[str], settings: Settings, budget: int
) -> tuple[LiveResult, ...]:
    """Ask the services what these cassettes hold, in at most `budget` calls. Raises ConfigError."""
    table = resolve_routes(settings, os.environ)
    questions = _Questions(budget)
    async with OpenStores() as stores:
        results = [await _collect(name, settings, table, questions, stores) for name in names]
    to_ask = list(questions)
    async with make_client(settings, ()) as client:
        with terminal.progress("asking", len(to_ask)) as step:
            for question in to_ask:
                question.result.asked.append(await _ask(client, question.item, table, settings))
                step(1)
    return tuple(results)


async def _collect(
    name: str, settings: Settings, table: RouteTable, questions: _Questions, stores: OpenStores
) -> LiveResult:
    result = LiveResult(name)
    try:
        async with stores.cassette(locate(name, settings.store)) as cassette:
            result.name = cassette.shown
            await _collect_from(cassette, table, questions, result)
    except TapewayError as exc:
        result.error = exc.message
    return result


async def _collect_from(
    cassette: CassetteRef, table: RouteTable, questions: _Questions, result: LiveResult
) -> None:
    walk = await cassette.walk()
    rules = cassette.rules(walk.head)
    seen: set[bytes] = set()
    issued: set[str] = set()
    async for stored in walk.items:
        item = assign_route(stored, table)
        call = None
        if isinstance(item, Interaction):
            call = describe_call(item.request.route, item.request)
            key = request_key(item.request, rules)
            reason = "asked already" if key in seen else asking.not_asked(item, call, table, issued)
            seen.add(key)
            issued |= issued_ids(item.response)
        else:
            reason = "not HTTP"
        if reason:
            result.not_asked[reason] += 1
        elif isinstance(item, Interaction):
            questions.add(_Question(result, item), call)


async def _ask(
    client: UpstreamClient, item: Interaction, table: RouteTable, settings: Settings
) -> AskedRecording:
    shown = f"{item.request.method} {item.request.url}"
    try:
        _, live = await asking.ask(client, item, table, os.environ, settings.max_body)
    except UpstreamError as exc:
        return AskedRecording(item.index, shown, failed=exc.message)
    if live.status in asking.PASSING:
        return AskedRecording(item.index, shown, failed=f"the service answered {live.status}")
    return AskedRecording(item.index, shown, drift=drift(item.response, live))


def lines(result: LiveResult) -> Iterator[str]:
    """What was found for one cassette, recorded and live side by side."""
    name = terminal.line(result.name)
    for recording in result.asked:
        if recording.failed or recording.drift:
            yield terminal.line(f"{name} #{recording.index} {recording.request}")
        if recording.failed:
            yield terminal.styled(f"  not answered: {terminal.line(recording.failed)}", "bad")
        yield from _table(recording.drift)
    failed = sum([bool(recording.failed) for recording in result.asked])
    counts = [
        terminal.counted(len(result.asked), "call"),
        *([f"{failed} not answered"] if failed else []),
        *[terminal.counted(n, level) for level in _LEVELS if (n := result.count(level))],
    ]
    reasons = [f"{count} {reason}" for reason, count in sorted(result.not_asked.items())]
    not_asked = f"; not asked: {', '.join(reasons)}" if reasons else ""
    yield f"{name}: {', '.join(counts)}{'' if len(counts) > 1 else ', no drift'}{not_asked}"


def _table(drifts: Sequence[Drift]) -> Iterator[str]:
    rows = [
        (difference.level, terminal.line(difference.path), difference.recorded, difference.live)
        for level in _LEVELS
        for difference in drifts
        if difference.level == level
    ]
    heading = ("", "field", "recorded", "live")
    widths = [max([len(row[at]) for row in (heading, *rows)]) for at in range(4)]
    for row in (heading, *rows) if rows else ():
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        shown = f"  {'  '.join(cells)}".rstrip()
        yield terminal.styled(shown, _LEVELS[row[0]] if row[0] else "heading")


def document(result: LiveResult) -> Json:
    """The result of a comparison as JSON."""
    return {
        "name": result.name,
        "asked": [asdict(recording) for recording in result.asked],
        "not_asked": {**result.not_asked},
        "error": result.error,
    }
