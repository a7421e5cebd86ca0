"""The end mark in lines of JSON: nobody can use half a line, so each one goes on whole."""

from collections.abc import Mapping

import orjson

from tapeway.core.completeness import Mark
from tapeway.core.json_text import Json


class LineScanner:
    """A Scanner of lines; the last one has this field with this value."""

    def __init__(self, field: str, value: Json) -> None:
        self._field = field
        self._value = value
        self.free = 0
        self.mark: Mark = ""
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        """Look at the next piece."""
        if self.mark:
            return
        *ends, rest = data.split(b"\n")
        for each in ends:
            self._line += each
            if self._end_line():
                return
        self._line += rest

    def finish(self) -> None:
        """Take what has come for all there is."""
        if not self.mark and self._line:
            self._end_line()

    def _end_line(self) -> bool:
        """Whether the stream has ended with it."""
        match _parsed(bytes(self._line)):
            case {"error": error} if error:
                self.mark = "error"
            case dict() as found if found.get(self._field) == self._value:
                self.mark = "end"
            case _:
                self.free += len(self._line) + 1
        self._line.clear()
        return bool(self.mark)


def _parsed(line: bytes) -> Mapping[str, Json] | None:
    try:
        value: Json = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
