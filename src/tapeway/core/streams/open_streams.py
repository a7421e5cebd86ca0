"""Streams that stay open, and the number of requests before each event.

An event may answer a request that was made beside the stream, as in MCP's older transport. A
recording therefore counts the requests of the route before each event, and a replay
sends the event after as many requests.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, zip_longest
from typing import NamedTuple

from tapeway.core.http.content_codings import coding_of
from tapeway.core.json_text import json_object
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.core.model.request_fields import is_json, media_type
from tapeway.core.streams.documents import placed_documents
from tapeway.core.streams.events import SSE, LineEvents, SseEvents
from tapeway.core.streams.framings import FRAMINGS, LINES, events_of

_SUCCESS = range(200, 300)


class Gate(NamedTuple):
    """From `place` on, a body waits until `requests` requests of the route have come."""

    place: int
    requests: int


def may_stay_open(method: str, head: ResponseHead) -> bool:
    """Whether a response may be a stream that stays open, if its protocol has no end mark."""
    return _is_read(method, head) and _media(head) == SSE


def may_turn_out_open(method: str, head: ResponseHead) -> bool:
    """Whether a response may turn out to be a stream that stays open: its lines of JSON pause.

    Kubernetes sends the events of a watch so, under the type of a JSON document.
    """
    if not _is_read(method, head) or head.framing == "length" or coding_of(head):
        return False
    return is_json(head.value(b"content-type") or b"") or FRAMINGS.get(_media(head)) is LINES


def _is_read(method: str, head: ResponseHead) -> bool:
    return method == "GET" and head.status in _SUCCESS


def _media(head: ResponseHead) -> bytes:
    return media_type(head.value(b"content-type") or b"")


def requests_by_event(response: Response, counted: Sequence[tuple[float, int]]) -> tuple[int, ...]:
    """The number of requests at the beginning of a stream, and at each event.

    Last when it ended, if it did; of a body that is no event stream that is all. `counted` has the number of requests from each moment on, in milliseconds; the first is that of
    the stream's own request. The body is in memory.
    """
    moments = [at_ms for at_ms, _ in counted]
    arrivals = response.arrivals()
    ends, counts = [*accumulate(arrivals.lengths)], [counted[0][1]]
    for position in _ends_of_events(response):
        chunk = min(bisect_right(ends, position - 1), len(ends) - 1)
        number = bisect_right(moments, arrivals.times[chunk])
        counts.append(counted[max(0, number - 1)][1])
    if response.verdict != "open":
        counts.append(counted[-1][1])
    return tuple(counts)


def gates(response: Response) -> Iterator[Gate]:
    """The gates of a recorded stream, in order; of an edited one the last number counts further."""
    if not response.after_requests:
        return
    if _media(response.head) != SSE and response.verdict != "open":
        yield Gate(0, response.after_requests[-1])
        return
    passed, start, last = 0, 0, response.after_requests[0]
    places = _ends_of_events(response)
    for position, number in zip_longest(places, response.after_requests[1:]):
        last = last if number is None else number
        if last > passed:
            # The count after the last event marks the end of the stream.
            yield Gate(response.size if position is None else start, last)
            passed = last
        start = position or start


def _ends_of_events(response: Response) -> list[int]:
    """Where each event ends; in a stream of JSON that stays open, where each line ends."""
    if response.verdict == "open" and is_json(response.head.value(b"content-type") or b""):
        return [event.end for event in events_of(LINES, response.body)]
    return [position for position, _ in placed_documents(response)]


class LineWatch:
    """Tells whether a body is whole lines so far, each a JSON object, whatever the chunks.

    Empty lines keep a connection alive. A body that is one document is seen as such by its first
    line.
    """

    def __init__(self) -> None:
        self.may_stay_open = True
        """Whether no line yet is anything but an object."""
        self._count = 0
        self._reader = LineEvents()

    @property
    def has_whole_lines(self) -> bool:
        """Whether there are lines, all of which have ended."""
        return self.may_stay_open and self._count > 0 and self._reader.begun is None

    def add(self, data: bytes) -> bool:
        """Look at the next piece; returns whether there is anything of a line in it."""
        for event in self._reader.feed(data) if self.may_stay_open else ():
            self._count += 1
            self.may_stay_open = self.may_stay_open and json_object(event.data) is not None
        begun = self._reader.begun
        if begun is not None and not begun.data.startswith(b"{"):
            self.may_stay_open = False
        return not data.isspace()


class EventWatch:
    """Tells events from comments in a stream, whatever the chunks."""

    def __init__(self) -> None:
        self._reader = SseEvents()

    def has_event(self, data: bytes) -> bool:
        """Whether an event ends with the next piece, or has begun and has not ended."""
        return bool(self._reader.feed(data)) or self._reader.begun is not None
