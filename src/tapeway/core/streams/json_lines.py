"""Lines of JSON: the media types, and the end mark.

Half a line is useless, so lines are sent whole.
"""

import re
from collections.abc import Iterator

from tapeway.core.json_text import Json, json_object
from tapeway.core.streams.end_marks import MAX_EVENT, EndMark, reports_failure

MEDIA_TYPES = frozenset(
    {
        *(b"application/x-ndjson", b"application/ndjson", b"application/stream+json"),
        *(b"application/jsonl", b"application/x-jsonl"),
        *(b"application/jsonlines", b"application/x-jsonlines"),
        # Each line begins with a record separator (RFC 7464).
        b"application/json-seq",
    }
)
"""Media types of one JSON text a line. Only the last is standardised."""
RECORD_SEPARATOR = b"\x1e"


_LINE_END = re.compile(rb"\r\n|\n|\r")


def lines_of(body: bytes) -> Iterator[bytes]:
    """Each line of a whole body; some may be empty."""
    return (part.lstrip(RECORD_SEPARATOR) for part in _LINE_END.split(body))


def placed_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Each line that says something, with its end in the body."""
    start = 0
    for end in [*(line_end.end() for line_end in _LINE_END.finditer(body)), len(body)]:
        if text := body[start:end].lstrip(RECORD_SEPARATOR).rstrip(b"\r\n"):
            yield end, text
        start = end


class JsonLineScanner:
    """An EndScanner of lines: the last line has the given field with the given value.

    Without a field no line is the last.
    """

    def __init__(self, field: str = "", value: Json = None) -> None:
        self._field = field
        self._value = value
        self.releasable = 0
        self.mark: EndMark = ""
        self._line = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Scan the next piece."""
        if self.mark:
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add_to_line(end)
            if self._end_line():
                return
        self._add_to_line(rest)

    def finish(self) -> None:
        """Treat what has arrived as the whole body."""
        if not self.mark and self._size:
            self._end_line()

    def _add_to_line(self, data: bytes) -> None:
        self._size += len(data)
        self._line += data[: MAX_EVENT - len(self._line)]

    def _end_line(self) -> bool:
        """Whether the stream has ended with it."""
        document = self._document()
        if reports_failure(document):
            self.mark = "error"
        elif document is not None and self._field and document.get(self._field) == self._value:
            self.mark = "end"
        else:
            self.releasable += self._size + 1
        self._line.clear()
        self._size = 0
        return bool(self.mark)

    def _document(self) -> dict[str, Json] | None:
        """What the line says, where that may end the stream."""
        is_telling = self._field or b'"error"' in self._line
        if not is_telling or self._size > MAX_EVENT:
            return None
        return json_object(bytes(self._line).lstrip(RECORD_SEPARATOR))
