"""New recordings that state the time of recording, and the rule by which they match later."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tapeway.core.matching.rules import Rules
from tapeway.core.misses.dated_requests import FoundMoment, found_moment
from tapeway.core.misses.suggestion import confused_recordings, refusal_text, rules_text
from tapeway.core.model.interaction import AnyInteraction, Interaction

_MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class DatedRecording:
    """A recording whose request has the day (or else the time of day) it was made at.

    `advice` names the rule, or says why none is suggested.
    """

    index: int
    method: str
    path: str
    kind: Literal["date", "time"]
    advice: str

    @property
    def title(self) -> str:
        """The recording in one line."""
        return f"#{self.index} {self.method} {self.path}"


def dated_recordings(
    recordings: Iterable[Interaction],
    recorded_at: Mapping[int, float],
    rules: Rules,
    everything: Sequence[AnyInteraction],
) -> tuple[DatedRecording, ...]:
    """New recordings that state the time of recording; `everything` is the cassette."""
    found = [
        (each, moment)
        for each in recordings
        if (moment := found_moment(each.request, rules, _moments(recorded_at[each.index])))
        is not None
    ]
    advice = {moment: _advice(moment, rules, everything) for _, moment in found}
    return tuple(
        DatedRecording(
            *(each.index, each.request.method, each.request.target, moment.kind, advice[moment])
        )
        for each, moment in found
    )


def dated_notices(dated: Iterable[DatedRecording]) -> Iterator[str]:
    """What there is to say of them, in a line for each rule."""
    for (kind, advice), count in Counter([(each.kind, each.advice) for each in dated]).items():
        many, says = ("recordings", "contain") if count > 1 else ("recording", "contains")
        when = ("today's date", "tomorrow") if kind == "date" else ("the time of day", "later")
        yield f"{count} {many} {says} {when[0]} and will miss {when[1]}; {advice}"


def _moments(at: float) -> list[datetime]:
    """The minute of a recording and the one before, as clocks here and in UTC show them."""
    return [
        datetime.fromtimestamp(seconds, zone)
        for seconds in (at, at - _MINUTE_S)
        for zone in (None, UTC)
    ]


def _advice(moment: FoundMoment, rules: Rules, everything: Sequence[AnyInteraction]) -> str:
    added = Rules(normalise=moment.normalisers)
    if (confused := confused_recordings(everything, rules, added)) is not None:
        return refusal_text(added, confused)
    return f"rule: {rules_text(added)}"
