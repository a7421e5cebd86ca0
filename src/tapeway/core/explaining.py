"""Why a request was missed: the nearest recordings, and the rule that would make one match."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter

from tapeway.core.differences import shown
from tapeway.core.miss import Explanation, Miss, Near
from tapeway.core.model import ForeignInteraction, Interaction, Request
from tapeway.core.nearest import LARGEST, Neighbour, compared, nearest
from tapeway.core.rules import Rules
from tapeway.core.suggestion import rules_text, suggestion

MOST_NEAREST = 3
MOST_SHOWN = 20
"""Of one recording; a person reads the first few."""

TOO_LARGE = "its body is too large to look for the nearest recording"


def explain(
    miss: Miss,
    held: Iterable[Interaction | ForeignInteraction],
    rules: Rules,
    redact: Callable[[Request], Request],
) -> Explanation:
    """What explains a miss among these recordings, their requests redacted before they are shown.

    Takes tens of milliseconds among ten thousand of them.
    """
    if miss.used_up:
        return Explanation(tuple(Near(index) for index in miss.used_up[:MOST_NEAREST]))
    if len(miss.request.body) > LARGEST:
        return Explanation(note=TOO_LARGE)
    found = nearest(miss.request, sorted(held, key=attrgetter("index")), rules, MOST_NEAREST)
    if not found:
        return Explanation()
    added = suggestion(found[0].interaction.request, miss.request, rules)
    return Explanation(
        tuple(_near(_redacted(each, miss, rules, redact)) for each in found),
        None if added is None else rules_text(added),
    )


def _redacted(
    neighbour: Neighbour, miss: Miss, rules: Rules, redact: Callable[[Request], Request]
) -> Neighbour:
    """What another tool or a person put into the cassette was never redacted."""
    request = neighbour.interaction.request
    if (clean := redact(request)) == request:
        return neighbour
    return replace(neighbour, differences=compared(clean, miss.request, rules))


def _near(neighbour: Neighbour) -> Near:
    first = neighbour.differences[:MOST_SHOWN]
    return Near(neighbour.index, tuple(map(shown, first)), len(neighbour.differences) - len(first))
