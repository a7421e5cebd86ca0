"""In which mode and take of its cassette a request can have been served.

A steering call that was answered with 200 is in force on all processes from then on. One that was
answered otherwise may be in force or not, on some or on all, until the next one with 200.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from soak.history import Asked, Mode, Steered

START_MODE: Mode = "auto"
START_CASSETTE = "default"


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which one cassette was in one mode and take.

    It begins at some moment between `changing` and `since`, and ends when the next change begins.
    In an uncertain one any of `modes` may be in force, and takes may begin.
    """

    changing: float
    since: float
    until: float
    modes: frozenset[Mode]
    certain: bool = True
    take_from: float = -inf
    """No request that ended before belongs to its take."""


def spans(steered: Iterable[Steered], cassette: str) -> Sequence[Span]:
    """The life of a cassette that requests name, in order and without gaps."""
    found = [Span(-inf, -inf, inf, frozenset({START_MODE}))]
    for change in sorted(steered, key=lambda one: one.began):
        if change.what != "insert" and change.cassette in (None, cassette):
            _change(found, change)
    return found


def _change(found: list[Span], steering: Steered) -> None:
    last = found[-1]
    overlaps = steering.began < last.since
    modes = last.modes if steering.mode is None else frozenset({steering.mode})
    certain = steering.status == 200 and not overlaps
    if steering.what == "eject":
        # It is 409 where no process used the cassette in this take: then nothing is to be ended.
        certain = steering.status in (200, 409) and not overlaps
    if steering.mode is None:
        # Where the mode was unknown before, it is still.
        certain = certain and len(last.modes) == 1
    if not certain:
        modes |= last.modes
    elif steering.what == "mode" and last.certain and modes == last.modes:
        # To set the mode that is in force changes nothing.
        return
    take_from = steering.began
    if steering.what == "mode" and not last.certain:
        # Its take may have begun with an earlier attempt.
        take_from = last.take_from
    found[-1] = replace(last, until=steering.began)
    since = max(steering.ended, last.since)
    found.append(Span(steering.began, since, inf, modes, certain, take_from))


def possible_modes(life: Sequence[Span], asked: Asked) -> frozenset[Mode]:
    """The modes that can have been in force when a request arrived."""
    return frozenset(
        mode for span in _touched(life, asked.began, asked.ended) for mode in span.modes
    )


def _touched(life: Sequence[Span], began: float, ended: float) -> Iterable[Span]:
    first = max(0, bisect_right(life, began, key=lambda span: span.changing) - 1)
    # A change that was under way when the request began leaves the state before it possible.
    while first > 0 and life[first].since > began:
        first -= 1
    for span in life[first:]:
        if span.changing > ended:
            return
        yield span


def only_span(life: Sequence[Span], asked: Asked) -> Span | None:
    """The one span in which a request was certainly served, None where there are several."""
    at = max(0, bisect_right(life, asked.began, key=lambda known_span: known_span.changing) - 1)
    span = life[at]
    inside = span.certain and span.since <= asked.began and asked.ended <= span.until
    return span if inside else None


def possible_cassettes(steered: Iterable[Steered], asked: Asked) -> frozenset[str]:
    """The cassettes that can have been the active one when a request arrived."""
    possible = frozenset({START_CASSETTE})
    before = -inf
    found: set[str] = set()
    for answer in sorted(steered, key=lambda one: one.began):
        if answer.what not in ("insert", "start"):
            continue
        named = START_CASSETTE if answer.cassette is None else answer.cassette
        if answer.ended > asked.began:
            found |= possible
        if answer.began > asked.ended:
            return frozenset(found | possible)
        sure = answer.status == 200 and answer.began >= before
        possible = frozenset({named}) if sure else possible | {named}
        before = max(before, answer.ended)
    return frozenset(found | possible)
