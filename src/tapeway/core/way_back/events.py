"""The event in which an MCP server of the older transport says where to post messages to.

event: endpoint
data: /messages/?session_id=abc
"""

import re

from tapeway.core.way_back.addresses import WayBack

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\r\n\n|\n\r\n")
_IS_ENDPOINT = re.compile(rb"(?:^(?:\xef\xbb\xbf)?|[\r\n])event: ?endpoint[ \t]*(?:[\r\n]|$)")
_DATA = re.compile(rb"(?:(?<=^)|(?<=[\r\n]))data: ?([^\r\n]*)")

_LINE_END = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"
"""A stream may begin with a byte order mark."""
_NAMES = tuple([m + n for m in (b"", _MARK) for n in (b"event: endpoint", b"event:endpoint")])
_BEFORE = (b":", b"id:", b"retry:")

MOST_HELD = 64 * 1024
"""A longer event names no endpoint."""


class EndpointEvents:
    """Rewrites the address in each `endpoint` event of a stream, piece by piece.

    An `endpoint` event is held until complete. Other events leave unchanged.
    """

    def __init__(self, way_back: WayBack) -> None:
        self._way = way_back
        self._held = b""
        """The beginning of an event that may be an `endpoint`."""
        self._passing: bytes | None = None
        """The last bytes of an event that is none, and whose end is to come."""

    def feed(self, piece: bytes) -> bytes:
        """What of the stream may be sent now."""
        ready: list[bytes] = []
        while piece:
            part, piece = self._pass(piece) if self._passing is not None else self._hold(piece)
            ready.append(part)
        return b"".join(ready)

    def finish(self) -> bytes:
        """The rest of the stream."""
        held, self._held = self._held, b""
        return held

    def _pass(self, piece: bytes) -> tuple[bytes, bytes]:
        before = self._passing or b""
        if (end := _EVENT_END.search(before + piece)) is None:
            self._passing = (before + piece[-3:])[-3:]
            return piece, b""
        self._passing = None
        cut = end.end() - len(before)
        return piece[:cut], piece[cut:]

    def _hold(self, piece: bytes) -> tuple[bytes, bytes]:
        held, self._held = self._held + piece, b""
        if (end := _EVENT_END.search(held)) is not None:
            return self._led_event(held[: end.end()]), held[end.end() :]
        if len(held) <= MOST_HELD and _may_be_endpoint(held):
            self._held = held
            return b"", b""
        self._passing = held[-3:]
        return held, b""

    def _led_event(self, event: bytes) -> bytes:
        if _IS_ENDPOINT.search(event) is None or len(data_fields := [*_DATA.finditer(event)]) != 1:
            return event
        [data] = data_fields
        led = self._way.lead_reference(data[1].decode("latin-1")).encode("latin-1")
        return event[: data.start(1)] + led + event[data.end(1) :]


def _may_be_endpoint(begun: bytes) -> bool:
    """Whether the beginning of an event may become an `endpoint`, whose name stands before its data."""
    for line in _LINE_END.split(begun):
        if line.startswith(_NAMES) or any(name.startswith(line) for name in _NAMES):
            return True
        if not line.startswith(_BEFORE) and not any(name.startswith(line) for name in _BEFORE):
            return False
    return True
