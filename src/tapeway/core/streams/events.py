"""The events of a stream, as its bytes arrive: server-sent events and lines of JSON.

Each framing has a reader, and `framings` chooses it. The events do not depend on how the bytes are
split; only the LF of a CRLF may come after the event that its CR has ended, since an event is
dispatched at the CR (WHATWG HTML, section 9.2.6).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

MAX_EVENT = 4 * 1024 * 1024
"""So much of an event is kept while a stream arrives: an event may be as long as a body."""

SSE = b"text/event-stream"
BOM = b"\xef\xbb\xbf"

LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELDS = (b"data", b"event", b"id", b"retry", b"error")
_LINE_COST = 64
"""The memory that each line of an event takes besides the text."""
_ENDS = (b"\n\n", b"\r\n\r\n")
"""What ends nearly every event."""
_BEGINNING = 64
"""The length of an unfinished line that is enough to see what it can become."""
_AROUND_LINES = b" \t\r\n\x1e"
"""Blanks of JSON, and the separator before each line of a JSON text sequence (RFC 7464)."""


@dataclass(slots=True)
class Event:
    """An event and its place in the body.

    `start` is the place of the first field. `end` is behind what completes the event, and `closes`
    is where that begins: the empty line of a server-sent event. `lines` are the lines of data, each
    with its place. `early` is the name, if it stands before the data. `failed` means that the event
    reports an error by its framing. An event that is not `whole` is cut off by the end of the body,
    or still arrives.
    """

    start: int
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    name: str = ""
    early: str = ""
    failed: bool = False
    closes: int = 0
    end: int = 0
    whole: bool = False

    @property
    def data(self) -> bytes:
        """The lines of data as one text."""
        lines = self.lines
        return lines[0][1] if len(lines) == 1 else b"\n".join([line for _, line in lines])


class EventReader(Protocol):
    """Reads the events of one body.

    `wanted` are texts: events without any of them may be left out. More than `most` bytes of an
    event are not kept.
    """

    def __init__(self, wanted: Sequence[bytes] = (), most: int = MAX_EVENT) -> None: ...

    @property
    def size(self) -> int:
        """How many bytes have arrived."""

    def feed(self, data: bytes) -> Sequence[Event]:
        """The events that are complete with the next piece."""

    def finish(self) -> Sequence[Event]:
        """The event that the end of the body cuts off, if there is one."""

    @property
    def begun(self) -> Event | None:
        """What has arrived of the next event, at least its first line, None if nothing has."""


class SseEvents:
    """Server-sent events: each block with any field, also one that only names an id.

    A block with llama.cpp's field `error`, which the standard does not know, has `failed`.
    """

    def __init__(self, wanted: Sequence[bytes] = (), most: int = MAX_EVENT) -> None:
        self.size = 0
        self._wanted = wanted
        self._most = self._room = most
        self._line = bytearray()
        self._line_start = 0
        self._after_cr = False
        self._event: Event | None = None

    def feed(self, data: bytes) -> Sequence[Event]:
        if not data:
            return ()
        events: list[Event] = []
        base, at = self.size, 0
        self.size += len(data)
        if self._after_cr and data.startswith(b"\n"):
            at, self._line_start = 1, base + 1
        self._after_cr = data.endswith(b"\r")
        dull = _DullEvents(data, self._wanted) if self._wanted else None
        # Nearly all streams have no CR, and a search for one octet takes half the time.
        has_cr = data.find(b"\r") >= 0
        while True:
            if dull is not None and self._event is None and not self._line:
                at = dull.passed(at)
                self._line_start = base + at
            if not has_cr:
                end = data.find(b"\n", at)
                next_line = end + 1
            else:
                found = LINE_END.search(data, at)
                end, next_line = found.span() if found is not None else (-1, 0)
            if end < 0:
                break
            line = data[at:end] if not self._line else self._whole_line(data[at:end])
            at = next_line
            if line:
                self._read(line)
            elif self._event is not None:
                events.append(self._ended(self._event, base + at))
            self._line_start = base + at
        if at < len(data):
            self._keep(data[at:])
        return events

    def finish(self) -> Sequence[Event]:
        self._read(self._whole_line(b""))
        self._line_start = self.size
        return () if self._event is None else [self._ended(self._event, self.size, whole=False)]

    @property
    def begun(self) -> Event | None:
        if not self._line or (self._event is not None and self._event.lines):
            return self._event
        place, line = self._without_mark(bytes(self._line[:_BEGINNING]))
        name, colon, value = line.partition(b":")
        is_field = name in _FIELDS if colon else any(field.startswith(name) for field in _FIELDS)
        if not line or not is_field:
            return self._event
        event = Event(place) if self._event is None else replace(self._event)
        if colon and name == b"data":
            event.early = event.name
            event.lines = [(place, value.removeprefix(b" "))]
        return event

    def _whole_line(self, rest: bytes) -> bytes:
        self._keep(rest)
        line = bytes(self._line)
        self._line.clear()
        return line

    def _keep(self, data: bytes) -> None:
        self._line += data[: self._most - len(self._line)]

    def _read(self, line: bytes) -> None:
        start = self._line_start
        if start == 0:
            start, line = self._without_mark(line)
        name, _, value = line.partition(b":")
        if name not in _FIELDS:
            return
        if (event := self._event) is None:
            event = self._event = Event(start)
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data" and self._room > 0:
            if not event.lines:
                event.early = event.name
            event.lines.append((start + len(line) - len(value), value[: self._room]))
            self._room -= len(value) + _LINE_COST
        elif name == b"event":
            event.name = value.decode("utf-8", "replace")
        elif name == b"error":
            event.failed |= value != b""

    def _without_mark(self, line: bytes) -> tuple[int, bytes]:
        """Where a line begins, and its text; a byte order mark may stand before the first."""
        if self._line_start == 0 and line.startswith(BOM):
            return len(BOM), line[len(BOM) :]
        return self._line_start, line

    def _ended(self, event: Event, end: int, *, whole: bool = True) -> Event:
        event.closes, event.end, event.whole = self._line_start, end, whole
        if not event.lines:
            event.early = event.name
        self._event, self._room = None, self._most
        return event


class LineEvents:
    """Lines of JSON; blank ones are no events. A CR is a blank of JSON, and ends no line."""

    def __init__(self, wanted: Sequence[bytes] = (), most: int = MAX_EVENT) -> None:
        self.size = 0
        self._most = most
        self._line = bytearray()
        self._start = 0
        """Where the kept part of the line begins: at its first byte that is not blank."""

    def feed(self, data: bytes) -> Sequence[Event]:
        events: list[Event] = []
        base, at = self.size, 0
        self.size += len(data)
        while (end := data.find(b"\n", at)) >= 0:
            if self._line:
                self._keep(data[at:end])
                events.append(self._ended(base + end + 1))
            elif line := data[at:end].lstrip(_AROUND_LINES):
                events.append(self._event(base + end - len(line), line, base + end + 1))
            at = end + 1
        if at < len(data):
            self._keep(data[at:])
        return events

    def finish(self) -> Sequence[Event]:
        return [self._ended(self.size, whole=False)] if self._line else ()

    @property
    def begun(self) -> Event | None:
        if not self._line:
            return None
        return Event(self._start, [(self._start, bytes(self._line[:_BEGINNING]))])

    def _keep(self, data: bytes) -> None:
        if not self._line:
            data = data.lstrip(_AROUND_LINES)
            self._start = self.size - len(data)
        # One more than is looked at tells that the line is longer.
        self._line += data[: self._most + 1 - len(self._line)]

    def _ended(self, end: int, *, whole: bool = True) -> Event:
        line = bytes(self._line)
        self._line.clear()
        return self._event(self._start, line, end, whole=whole)

    def _event(self, start: int, line: bytes, end: int, *, whole: bool = True) -> Event:
        text = line.rstrip(_AROUND_LINES) if len(line) <= self._most else b""
        return Event(start, [(start, text)], closes=end, end=end, whole=whole)


class _DullEvents:
    """The events of a piece without any wanted text; each text is searched for once."""

    def __init__(self, data: bytes, wanted: Sequence[bytes]) -> None:
        self._data = data
        self._next = dict.fromkeys(wanted, -1)

    def passed(self, start: int) -> int:
        """Behind the last event before any wanted text; `start` is between events and never shrinks."""
        data, first = self._data, len(self._data)
        for text, place in self._next.items():
            if place < start:
                place = data.find(text, start)
                self._next[text] = place = place if place >= 0 else len(data)
            if place < first:
                first = place
        for end in _ENDS:
            if (place := data.rfind(end, start, first)) >= 0:
                start = place + len(end)
        return start
