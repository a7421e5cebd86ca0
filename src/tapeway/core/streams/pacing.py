"""The pace of a replay: when each chunk of a recorded response is due, and its Retry-After.

A replayed response asks its client to wait only as long as the replay's own pace requires.
Retry-After is in whole seconds, or a date (RFC 9110 section 10.2.3). `retry-after-ms` is OpenAI's
and Azure's, and SDKs read it first.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Headers, Response, ResponseHead

T = TypeVar("T")
_first = itemgetter(0)
_SECONDS = b"retry-after"
_MILLISECONDS = b"retry-after-ms"

_SOON_MS = 1
"""OpenAI's and Anthropic's clients ignore a 0 and wait half a second."""

_LONGEST = 1e9
"""Larger values of either unit change nothing, and would not fit some client's clock."""


class Pace(float):
    """Seconds of replay per recorded second: 1 as recorded, 0.5 for twice as fast."""


AT_ONCE = Pace(0)
AS_RECORDED = Pace(1)


class Schedule:
    """The times of one response, in seconds from the arrival of the request."""

    def __init__(self, response: Response, latency_ms: float, pace: Pace) -> None:
        times = response.arrivals().times
        self._pace = pace
        # Without times, as in imported recordings, the response arrived at the end of the call.
        self._earliest = 0.0 if any(times) else latency_ms
        self.head_s = self.due_s(times[0] if times else 0.0)
        self.end_s = self.due_s(max(latency_ms, times[-1] if times else 0.0))

    def due_s(self, at_ms: float) -> float:
        """When to send a chunk with this recorded time."""
        return max(at_ms, self._earliest) / 1000 * self._pace

    def divided(
        self, times: Sequence[float], pieces: Sequence[T]
    ) -> Iterator[tuple[float, Sequence[T]]]:
        """The pieces in groups that are due together, with the recorded times."""
        if not self._pace:
            yield 0.0, pieces
            return
        for due_s, group in groupby(zip(map(self.due_s, times), pieces, strict=True), _first):
            yield due_s, [piece for _, piece in group]


def scale_retry_after(head: ResponseHead, pace: Pace) -> ResponseHead:
    """The head with Retry-After scaled to the pace.

    Returns `head` itself without a Retry-After that can be scaled.
    """
    if (
        find_header(head.headers, _SECONDS) is None
        and find_header(head.headers, _MILLISECONDS) is None
    ):
        return head
    wait_s = 0.0 if pace == AT_ONCE else _recorded_wait_s(head.headers)
    if wait_s is None:
        return head
    return replace(head, headers=_with_wait(head.headers, wait_s * pace))


def _recorded_wait_s(headers: Headers) -> float | None:
    """The recorded wait in seconds. A date counts from the response's Date."""
    if (milliseconds := _number(find_header(headers, _MILLISECONDS) or b"")) is not None:
        return milliseconds / 1000
    seconds = find_header(headers, _SECONDS) or b""
    if (number := _number(seconds)) is not None:
        return number
    until, since = _timestamp(seconds), _timestamp(find_header(headers, b"date") or b"")
    return None if until is None or since is None else max(0.0, until - since)


def _number(value: bytes) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return min(number, _LONGEST) if number >= 0 else None


def _timestamp(http_date: bytes) -> float | None:
    # Only here: few answers have a date to wait for, and it takes long to import.
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(http_date.decode("latin-1")).timestamp()
    except (ValueError, OverflowError):
        return None


def _with_wait(headers: Headers, wait_s: float) -> Headers:
    milliseconds = b"%d" % max(_SOON_MS, round(wait_s * 1000))
    values = {_SECONDS: b"%d" % math.ceil(wait_s), _MILLISECONDS: milliseconds}
    scaled = tuple([(name, values.get(name.lower(), value)) for name, value in headers])
    if find_header(headers, _MILLISECONDS) is not None:
        return scaled
    # After the other field, where a reader of the response sees both.
    at = max(index for index, (name, _) in enumerate(scaled) if name.lower() == _SECONDS) + 1
    return (*scaled[:at], (_MILLISECONDS, milliseconds), *scaled[at:])
