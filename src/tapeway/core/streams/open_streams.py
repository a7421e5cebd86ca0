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
from tapeway.core.http.headers import is_json, media_type
from tapeway.core.json_text import json_object
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.core.streams import json_lines, sse
from tapeway.core.streams.documents import placed_documents
from tapeway.core.streams.end_marks import MAX_EVENT

_SUCCESS = range(200, 300)
_AROUND_LINES = b" \t\r\n" + json_lines.RECORD_SEPARATOR


class Gate(NamedTuple):
    """From `place` on, a body waits until `requests` requests of the route have come."""

    place: int
    requests: int


def may_stay_open(method: str, head: ResponseHead) -> bool:
    """Whether a response may be a stream that stays open, if its protocol has no end mark."""
    return _is_read(method, head) and _media(head) == sse.MEDIA_TYPE


def may_turn_out_open(method: str, head: ResponseHead) -> bool:
    """Whether a response may turn out to be a stream that stays open: its lines of JSON pause.

    Kubernetes sends the events of a watch so, under the type of a JSON document.
    """
    if not _is_read(method, head) or head.framing == "length" or coding_of(head):
        return False
    return is_json(head.value(b"content-type") or b"") or _media(head) in json_lines.MEDIA_TYPES


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
    if _media(response.head) != sse.MEDIA_TYPE and response.verdict != "open":
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
        return [position for position, _ in json_lines.placed_lines(response.body)]
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
        self._line = bytearray()

    @property
    def has_whole_lines(self) -> bool:
        """Whether there are lines, all of which have ended."""
        return self.may_stay_open and self._count > 0 and not self._line.strip()

    def add(self, data: bytes) -> bool:
        """Look at the next piece; returns whether there is anything of a line in it."""
        if self.may_stay_open:
            self._look(data)
        return not data.isspace()

    def _look(self, data: bytes) -> None:
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = bytes(self._line + end).strip(_AROUND_LINES)
            self._line.clear()
            if line:
                self._count += 1
                self.may_stay_open = json_object(line) is not None
            if not self.may_stay_open:
                return
        self._line += rest
        beginning = bytes(self._line.lstrip(_AROUND_LINES)[:1])
        if beginning not in (b"", b"{") or len(self._line) > MAX_EVENT:
            self.may_stay_open = False
            self._line.clear()


class EventWatch:
    """Tells the lines of events from comments in a stream, whatever the chunks."""

    def __init__(self) -> None:
        self._line = b""
        """The beginning of the line that is not whole: one octet is enough."""

    def has_event(self, data: bytes) -> bool:
        """Whether there is anything of an event in the next piece."""
        has_data = False
        first, *rest = data.replace(b"\r", b"\n").split(b"\n")
        for line in (self._line + first, *rest):
            has_data = has_data or (line != b"" and not line.startswith(b":"))
        last = rest[-1] if rest else self._line + first
        self._line = last[:1]
        return has_data
