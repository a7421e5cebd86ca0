"""Server-sent events (WHATWG HTML, section 9.2): the data, and the end mark of a stream."""

import re
from collections.abc import Iterator, Sequence

from tapeway.core.json_text import Json, peek_json
from tapeway.core.streams.end_marks import MAX_EVENT, EndMark, EndMarks, reports_failure

MEDIA_TYPE = b"text/event-stream"

_LINE_END = re.compile(rb"\r\n|\n|\r")
_EMPTY_LINE = b"\n\n"
_BOM = b"\xef\xbb\xbf"
_BEGINNING = 64
"""The length of an unfinished line that is enough to recognise an end mark. Longer lines are not
read.
"""
_ERROR_FIELD = b"error"
_DECIDING_FIELDS = (b"event:", b"error:")
_LINE_COST = 64
"""The memory that each line of an event takes besides the text."""


def event_data(body: bytes, marks: Sequence[bytes] = ()) -> Iterator[bytes]:
    """The data of each event of a whole body, including a truncated last event.

    With `marks` (without line breaks), only events that may contain a mark.
    """
    body = body.removeprefix(_BOM)
    if marks:
        body = _events_with(marks, body)
    return (data for _, data in _events(_LINE_END.split(body)))


def _events_with(marks: Sequence[bytes], body: bytes) -> bytes:
    # Most streams have hundreds of events and counts in one: the others are not taken apart.
    end = _EMPTY_LINE if body.find(_EMPTY_LINE) >= 0 else b"\r\n\r\n"
    kept = [part for part in body.split(end) if any(part.find(mark) >= 0 for mark in marks)]
    return end.join(kept)


def placed_event_data(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The data of each event, with the place in the body at which the event is complete."""
    start = len(_BOM) if body.startswith(_BOM) else 0
    ends = [line_end.end() for line_end in _LINE_END.finditer(body, start)]
    for number, data in _events(_LINE_END.split(body.removeprefix(_BOM))):
        yield ends[number] if number < len(ends) else len(body), data


def _events(lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """The data of each event, and the number of the line that ends it."""
    data: list[bytes] = []
    for number, line in enumerate(lines):
        name, value = _field(line)
        if name == b"data":
            data.append(value)
        elif not line and data:
            yield number, b"\n".join(data)
            data = []
    if data:
        yield len(lines), b"\n".join(data)


class _Places:
    """Where any of some texts comes next in a body, which is gone through once for each of them."""

    def __init__(self, body: bytes, texts: Sequence[bytes]) -> None:
        self._body = body
        self._next = dict.fromkeys(texts, -1)

    def first(self, start: int) -> int:
        """The first place from `start` on, or the end of the body; `start` never shrinks."""
        first = len(self._body)
        for text, position in self._next.items():
            if position < start:
                index = self._body.find(text, start)
                position = self._next[text] = index if index >= 0 else len(self._body)
            first = min(first, position)
        return first


class SseScanner:
    """An EndScanner of events.

    A line that cannot end the stream may go at once: no client waits for the rest of an
    event. llama.cpp reports an error in a field `error` in place of `data`.
    """

    def __init__(self, marks: EndMarks) -> None:
        self._marks = marks
        self._texts = tuple(marks.texts)
        self._hints = [*marks.texts, *(mark.encode() for mark in marks.names | marks.errors)]
        """An event without any of these is no mark."""
        self.releasable = 0
        self.mark: EndMark = ""
        self._size = 0
        self._line = bytearray()
        self._line_start = 0
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []
        self._has_error_field = False
        self._room = MAX_EVENT
        self._event_start: int | None = None
        """The start of the event that is held back while it may end the stream."""

    def feed(self, data: bytes) -> None:
        """Scan the next piece."""
        if self.mark or not data:
            return
        base, start = self._size, 0
        self._size += len(data)
        if self._after_cr and data.startswith(b"\n"):
            # The second half of a CRLF.
            start = 1
            self._line_start += 1
        self._after_cr = data.endswith(b"\r")
        hints = _Places(data, self._hints)
        while True:
            if self._is_between_events(base + start):
                # Nearly all events say nothing, and need not be taken apart.
                last_end = data.rfind(_EMPTY_LINE, start, hints.first(start))
                if last_end >= 0:
                    start = last_end + len(_EMPTY_LINE)
                    self._line_start = base + start
            line_end = _LINE_END.search(data, start)
            if line_end is None:
                break
            self._add_to_line(data[start : line_end.start()])
            start = line_end.end()
            if self._end_line(base + start):
                return
        self._add_to_line(data[start:])
        self._release()

    def _is_between_events(self, position: int) -> bool:
        return self._line_start == position and not (
            self._line or self._data or self._name or self._event_start is not None
        )

    def finish(self) -> None:
        """Treat the received bytes as the whole body. Some bodies lack the last line's end."""
        if not self.mark:
            self._end_line(self._size)
            self._end_event(whole=False)

    def _add_to_line(self, data: bytes) -> None:
        self._line += data[: MAX_EVENT - len(self._line)]

    def _end_line(self, next_line: int) -> bool:
        """Whether the stream has ended with it."""
        line = self._text()
        name, value = _field(line)
        if name == b"event":
            self._name = value.decode("utf-8", "replace")
            self._hold_event(self._name in self._marks.names | self._marks.errors)
        elif name == b"data":
            if self._room > 0:
                self._data.append(value[: self._room])
                self._room -= len(value) + _LINE_COST
            self._hold_event(self._event_start is not None or self._may_end(line))
        elif name == _ERROR_FIELD and value:
            self._has_error_field = True
            self._hold_event(hold=True)
        elif not line and next_line > self._line_start:
            self._end_event(whole=True)
        self._line.clear()
        self._line_start = next_line
        return bool(self.mark)

    def _hold_event(self, hold: bool) -> None:
        if not hold:
            self._event_start = None
        elif self._event_start is None:
            self._event_start = self._line_start

    def _end_event(self, *, whole: bool) -> None:
        """Judge an event by name and data. The last line may be unfinished."""
        data = b"\n".join(self._data)
        named = self._name in self._marks.names | self._marks.errors
        if self._has_error_field:
            self._end_with("error")
        elif data.startswith(self._texts) or (named and whole):
            self._end_with("error" if self._name in self._marks.errors else "end")
        elif self._room > 0 and (named or any(hint in data for hint in self._hints)):
            self._judge(peek_json(data))
        self._name, self._data, self._event_start, self._room = "", [], None, MAX_EVENT
        self._has_error_field = False

    def _judge(self, value: Json) -> None:
        if not isinstance(value, dict):
            return
        kinds = {self._name, str(value.get("type"))}
        if reports_failure(value) or kinds & self._marks.errors:
            self._end_with("error")
        elif kinds & self._marks.names:
            self._end_with("end")

    def _end_with(self, mark: EndMark) -> None:
        self.mark = mark
        self._hold()

    def _release(self) -> None:
        if self._event_start is not None or self._may_end(self._text(longest=_BEGINNING)):
            self._hold()
        else:
            self.releasable = self._size

    def _hold(self) -> None:
        start = self._line_start if self._event_start is None else self._event_start
        self.releasable = max(self.releasable, start)

    def _may_end(self, line: bytes) -> bool:
        """Whether a line with this beginning can end the stream."""
        if not line:
            return False
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            return self._undecided or self._may_be_text(value)
        return line.startswith(_DECIDING_FIELDS) or any(
            field.startswith(line) for field in (*_DECIDING_FIELDS, b"data:")
        )

    def _may_be_text(self, value: bytes) -> bool:
        return value.startswith(self._texts) or any(text.startswith(value) for text in self._texts)

    @property
    def _undecided(self) -> bool:
        """Whether only the event's data shows the kind of the event."""
        return bool(self._marks.names) and not self._name

    def _text(self, longest: int | None = None) -> bytes:
        line = bytes(self._line[:longest])
        return line if self._line_start else line.removeprefix(_BOM)


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.removeprefix(b" ")
