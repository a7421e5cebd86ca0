"""The event in which an MCP server of the older transport says where to post messages to.

event: endpoint
data: /messages/?session_id=abc
"""

from tapeway.core.streams.events import Event, SseEvents
from tapeway.core.way_back.addresses import WayBack

MOST_HELD = 64 * 1024
"""A longer event names no endpoint."""


class EndpointEvents:
    """Rewrites the address in each `endpoint` event of a stream, piece by piece.

    An `endpoint` event is held until complete. Other events leave unchanged.
    """

    def __init__(self, way_back: WayBack) -> None:
        self._way = way_back
        self._reader = SseEvents(most=MOST_HELD)
        self._held = b""
        self._sent = 0
        """How much of the stream has been sent."""

    def feed(self, piece: bytes) -> bytes:
        """What of the stream may be sent now."""
        self._held += piece
        ready: list[bytes] = []
        for event in self._reader.feed(piece):
            if self._names_endpoint(event):
                place, address = event.lines[0]
                led = self._way.lead_reference(address.decode("latin-1")).encode("latin-1")
                ready += [self._take(place), led]
                self._take(place + len(address))
        begun = self._reader.begun
        is_held = begun is not None and _may_be_endpoint(begun)
        ready.append(self._take(begun.start if begun and is_held else self._reader.size))
        if len(self._held) > MOST_HELD:
            ready.append(self.finish())
        return b"".join(ready)

    def finish(self) -> bytes:
        """The rest of the stream."""
        return self._take(self._reader.size)

    def _names_endpoint(self, event: Event) -> bool:
        is_held = self._sent <= event.start and event.end - event.start <= MOST_HELD
        is_named = event.early == event.name == "endpoint"
        return is_named and len(event.lines) == 1 and is_held

    def _take(self, place: int) -> bytes:
        """What is held, up to a place in the stream."""
        count = max(0, place - self._sent)
        taken, self._held = self._held[:count], self._held[count:]
        self._sent += count
        return taken


def _may_be_endpoint(begun: Event) -> bool:
    """Whether the beginning of an event may become an `endpoint`, whose name stands before its data."""
    return begun.early == "endpoint" or not begun.lines
