"""The end mark in server-sent events (WHATWG HTML, section 9.2), found byte by byte.

A line that cannot end the stream is free at once, so that no client waits for the rest of an event.
"""

import re

import orjson

from tapeway.core.json_text import Json
from tapeway.core.streams.end_marks import EndMark, EndMarks

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_BEGINNING = 64
"""So much of an unfinished line tells whether it is an end mark; the rest of a long one is not read."""
MAX_EVENT = 4 * 1024 * 1024
"""A longer line or event is not looked into: one may be as long as a body."""
_OF_A_LINE = 64
"""What each line of an event costs besides what it holds."""


class SseScanner:
    """A Scanner of events."""

    def __init__(self, terms: EndMarks) -> None:
        self._terms = terms
        self._texts = tuple(terms.texts)
        self._hints = [each.encode() for each in terms.names | terms.errors]
        self.free = 0
        self.mark: EndMark = ""
        self._size = 0
        self._line = bytearray()
        self._line_start = 0
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []
        self._room = MAX_EVENT
        self._held: int | None = None

    def feed(self, data: bytes) -> None:
        """Look at the next piece."""
        if self.mark or not data:
            return
        base, start = self._size, 0
        self._size += len(data)
        if self._after_cr and data.startswith(b"\n"):
            # The other half of the line end before.
            start = 1
            self._line_start += 1
        self._after_cr = data.endswith(b"\r")
        for found in _LINE_END.finditer(data, start):
            self._take(data[start : found.start()])
            start = found.end()
            if self._end_line(base + start):
                return
        self._take(data[start:])
        self._release()

    def finish(self) -> None:
        """Take what has come for all there is: some end without the last line's end."""
        if not self.mark:
            self._end_line(self._size)
            self._end_event(whole=False)

    def _take(self, data: bytes) -> None:
        self._line += data[: MAX_EVENT - len(self._line)]

    def _end_line(self, next_line: int) -> bool:
        """Whether the stream has ended with it."""
        line = self._text()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode("utf-8", "replace")
            self._hold_event(self._name in self._terms.names | self._terms.errors)
        elif name == b"data":
            if self._room > 0:
                self._data.append(value[: self._room])
                self._room -= len(value) + _OF_A_LINE
            self._hold_event(self._held is not None or self._may_end(line))
        elif not line and next_line > self._line_start:
            self._end_event(whole=True)
        self._line.clear()
        self._line_start = next_line
        return bool(self.mark)

    def _hold_event(self, hold: bool) -> None:
        if not hold:
            self._held = None
        elif self._held is None:
            self._held = self._line_start

    def _end_event(self, *, whole: bool) -> None:
        """Judge an event by its name and by what it holds; its last line may not have ended it."""
        data = b"\n".join(self._data)
        named = self._name in self._terms.names | self._terms.errors
        if data.startswith(self._texts) or (named and whole):
            self._found("error" if self._name in self._terms.errors else "end")
        elif self._room > 0 and (named or any(hint in data for hint in self._hints)):
            self._judge(_parsed(data))
        self._name, self._data, self._held, self._room = "", [], None, MAX_EVENT

    def _judge(self, value: Json) -> None:
        if not isinstance(value, dict):
            return
        kinds = {self._name, str(value.get("type"))}
        if value.get("error") or kinds & self._terms.errors:
            self._found("error")
        elif kinds & self._terms.names:
            self._found("end")

    def _found(self, mark: EndMark) -> None:
        self.mark = mark
        self._hold()

    def _release(self) -> None:
        if self._may_end(self._text(longest=_BEGINNING)):
            self._hold()
        elif self._held is None:
            self.free = self._size

    def _hold(self) -> None:
        self.free = max(self.free, self._line_start if self._held is None else self._held)

    def _may_end(self, line: bytes) -> bool:
        """Whether this beginning of a line can become one that ends the stream."""
        if not line:
            return False
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            return self._undecided or self._may_be_text(value)
        return line.startswith(b"event:") or b"event:".startswith(line) or b"data:".startswith(line)

    def _may_be_text(self, value: bytes) -> bool:
        return value.startswith(self._texts) or any(text.startswith(value) for text in self._texts)

    @property
    def _undecided(self) -> bool:
        """Whether only what an event holds will tell what it is."""
        return bool(self._terms.names) and not self._name

    def _text(self, longest: int | None = None) -> bytes:
        line = bytes(self._line[:longest])
        return line if self._line_start else line.removeprefix(_BOM)


def _parsed(data: bytes) -> Json:
    try:
        value: Json = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value
