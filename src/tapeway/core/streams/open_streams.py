"""Event streams that stay open, and the number of requests before each event.

An event may answer a request that was made beside the stream, as in MCP's older transport. A
recording therefore counts the requests of the route before each event, and a replay
sends the event after as many requests.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, zip_longest
from typing import NamedTuple

from tapeway.core.http.headers import media_type
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.core.streams import sse
from tapeway.core.streams.documents import placed_documents

_SUCCESS = range(200, 300)


class Gate(NamedTuple):
    """From `place` on, a body waits until `requests` requests of the route have come."""

    place: int
    requests: int


def may_stay_open(method: str, head: ResponseHead) -> bool:
    """Whether a response may be a stream that stays open, if its protocol has no end mark."""
    if method != "GET" or head.status not in _SUCCESS:
        return False
    return media_type(head.value(b"content-type") or b"") == sse.MEDIA_TYPE


def requests_by_event(response: Response, counted: Sequence[tuple[float, int]]) -> tuple[int, ...]:
    """The number of requests at the beginning of a stream, and at each event.

    Last when it ended, if it did; of a body that is no event stream that is all. `counted` has the number of requests from each moment on, in milliseconds; the first is that of
    the stream's own request. The body is in memory.
    """
    moments = [at_ms for at_ms, _ in counted]
    arrivals = response.arrivals()
    ends, counts = [*accumulate(arrivals.lengths)], [counted[0][1]]
    for position, _ in placed_documents(response):
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
    if media_type(response.head.value(b"content-type") or b"") != sse.MEDIA_TYPE:
        yield Gate(0, response.after_requests[-1])
        return
    passed, start, last = 0, 0, response.after_requests[0]
    places = [position for position, _ in placed_documents(response)]
    for position, number in zip_longest(places, response.after_requests[1:]):
        last = last if number is None else number
        if last > passed:
            # The count after the last event marks the end of the stream.
            yield Gate(response.size if position is None else start, last)
            passed = last
        start = position or start


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
