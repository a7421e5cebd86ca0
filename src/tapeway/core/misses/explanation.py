"""Explains a miss: the nearest recordings, and rules under which the first would match."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter

from tapeway.core.matching.rules import Rules
from tapeway.core.misses.differences import difference_document
from tapeway.core.misses.miss import Miss, MissExplanation, NearestRecording
from tapeway.core.misses.nearest import LARGEST, ComparedRecording, nearest, request_differences
from tapeway.core.misses.suggestion import rules_text, suggestion
from tapeway.core.model.interaction import AnyInteraction, exchange_of
from tapeway.core.model.messages import Request
from tapeway.core.text import no_pause

MOST_NEAREST = 3

MOST_SHOWN = 20
"""Differences of one recording; a person reads the first few."""

_MOST_ROUTES = 3

NOTHING_RECORDED = "nothing is recorded for this method and path"
TOO_LARGE = "its body is too large to compare with recordings"


def explain(
    miss: Miss,
    recordings: Iterable[AnyInteraction],
    rules: Rules,
    redact: Callable[[Request], Request],
    step: Callable[[], None] = no_pause,
) -> MissExplanation:
    """Explain a miss by some recordings. Shown requests are redacted.

    A suggested rule keeps all different requests apart. `step` is called often, so that other
    threads can run.
    """
    if miss.used_up:
        used_up = [NearestRecording(index) for index in miss.used_up[:MOST_NEAREST]]
        return MissExplanation(tuple(used_up))
    if len(miss.request.body) > LARGEST:
        return MissExplanation(note=TOO_LARGE)
    ordered = sorted(recordings, key=attrgetter("index"))
    candidates = nearest(miss.request, ordered, rules, MOST_NEAREST, step)
    if not candidates:
        return MissExplanation(note=_nothing_recorded(miss.request, ordered))
    suggested = suggestion(candidates[0].interaction.request, miss.request, rules, ordered, step)
    shown: list[NearestRecording] = []
    for compared in candidates:
        shown.append(_for_people(_redacted(compared, miss, rules, redact)))
        step()
    return MissExplanation(
        tuple(shown),
        None if suggested.rules is None else rules_text(suggested.rules),
        suggested.refusal,
    )


def _nothing_recorded(request: Request, recordings: Iterable[AnyInteraction]) -> str:
    """Why nothing is near: a base URL may lead to a different route than the recordings'."""
    routes = {
        exchange.request.route for exchange in map(exchange_of, recordings) if exchange is not None
    }
    if not routes or routes & {"", request.route}:
        return NOTHING_RECORDED
    named = sorted(routes)
    more = " …" if len(named) > _MOST_ROUTES else ""
    return (
        f"nothing is recorded on route '{request.route}', "
        f"only on {', '.join(named[:_MOST_ROUTES])}{more}"
    )


def _redacted(
    recording: ComparedRecording, miss: Miss, rules: Rules, redact: Callable[[Request], Request]
) -> ComparedRecording:
    """The recording with a redacted request: tools and people write secrets into cassettes."""
    request = recording.interaction.request
    if (clean := redact(request)) == request:
        return recording
    return replace(recording, differences=request_differences(clean, miss.request, rules))


def _for_people(recording: ComparedRecording) -> NearestRecording:
    first = recording.differences[:MOST_SHOWN]
    more = len(recording.differences) - len(first)
    return NearestRecording(
        recording.interaction.index, tuple(map(difference_document, first)), more
    )
