"""Plain heads: those of requests whose body has a stated length, and that nothing makes unusual."""

import re

from tapeway.core.http.chunks import AWS_PAYLOAD_HEADER
from tapeway.core.http.headers import CASSETTE_HEADER, KEY_HEADERS
from tapeway.core.http.sdk_conventions import RETRIES_HEADER, TRIES_HEADER
from tapeway.core.model.messages import Headers
from tapeway.core.model.values import value_class
from tapeway.providers.paths import PROVIDER_HEADERS

LARGEST_HEAD = 4096
LARGEST_BODY = 64 * 1024
"""The body of a plain request; larger ones come in several segments."""
_MOST_FIELDS = 64

HEAD_END = b"\r\n\r\n"
_METHODS = frozenset({b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"})
_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):[ \t]*((?:[!-~](?:[!-~ \t]*[!-~])?)?)[ \t]*"
)
_LENGTH = re.compile(rb"[0-9]{1,6}")

_READ = frozenset(
    {
        *(b"host", b"connection", b"content-length", b"content-type", b"user-agent"),
        *(RETRIES_HEADER, TRIES_HEADER),
        *(CASSETTE_HEADER, *PROVIDER_HEADERS),
    }
)
"""Fields that are looked at, or that aiohttp refuses twice. A plain head has each at most once."""
_FRAMES = frozenset(
    {
        *(b"expect", b"upgrade", b"transfer-encoding", b"proxy-connection", b"http2-settings"),
        b"sec-websocket-key1",
    }
)
"""Fields that decide how the request is read: no plain head has them."""
_DECIDES = KEY_HEADERS | {
    *(b"server", b"etag", b"content-range", b"content-location", b"max-forwards"),
    AWS_PAYLOAD_HEADER,
}
"""Fields that may decide which recording answers, or that aiohttp refuses twice."""
MOST_LINES = 4096

_Field = tuple[bytes, bytes]
_NOT_PLAIN: _Field = (b"", b"")
_DECIDING: _Field = (b"*", b"")
"""Stands for one of `_DECIDES`, whatever its value."""


class _Lines(dict[bytes, _Field | None]):
    """What the lines of fields say, remembered: the lower-case name and the value.

    Or else _NOT_PLAIN or _DECIDING; None for a field that is not looked at. Clients repeat nearly all of their lines.
    """

    def __missing__(self, line: bytes) -> _Field | None:
        field = _read_line(line)
        if len(self) >= MOST_LINES:
            self.clear()
        self[line] = field
        return field


_field_of = _Lines().__getitem__


def _read_line(line: bytes) -> _Field | None:
    if (found := _FIELD.fullmatch(line)) is None or (name := found[1].lower()) in _FRAMES:
        return _NOT_PLAIN
    if name in _DECIDES:
        return _DECIDING
    value = found[2]
    if name == b"connection" and value.lower() != b"keep-alive":
        return _NOT_PLAIN
    if name == b"content-length" and _LENGTH.fullmatch(value) is None:
        return _NOT_PLAIN
    return (name, value) if name in _READ else None


@value_class
class PlainHead:
    """A plain head: its first line, the fields that are looked at, and the length of its body."""

    line: bytes
    fields: dict[bytes, bytes]
    """By name in lower case."""
    length: int
    text: bytes
    """All of it, up to the empty line."""
    rest: bytes
    """What came after it."""

    @property
    def may_be_hit(self) -> bool:
        """Whether nothing in it leaves the request to the ordinary way."""
        return _DECIDING[0] not in self.fields

    @property
    def headers(self) -> Headers:
        """All fields as they are written."""
        return fields_of(self.text)


def fields_of(text: bytes) -> Headers:
    """The fields of a plain head as they are written."""
    _, *lines = text.split(b"\r\n")
    fields = [line.partition(b":") for line in lines]
    return tuple([(name, value.strip(b" \t")) for name, _, value in fields])


def text_of(headers: Headers) -> bytes:
    """Fields as the text of a head without its first line, from which `fields_of` reads them."""
    return b"\r\n".join((b"", *map(b": ".join, headers)))


def read_plain_head(data: bytes) -> PlainHead | None:
    """The plain head that these bytes begin with, None where there is none."""
    # One search for the ends of lines finds the end of the head too.
    lines = data.split(b"\r\n", _MOST_FIELDS + 2)
    try:
        end = lines.index(b"")
    except ValueError:
        return None
    rest = lines[-1] if len(lines) == end + 2 else b"\r\n".join(lines[end + 1 :])
    size = len(data) - len(rest) - len(HEAD_END)
    if len(lines) == end + 1 or not 0 < size <= LARGEST_HEAD:
        return None
    line = lines[0]
    if line[: line.find(b" ")] not in _METHODS:
        return None
    found = [*filter(None, map(_field_of, lines[1:end]))]
    fields = dict(found)
    if b"" in fields or len(fields) < len(found):
        return None
    length = int(fields.get(b"content-length", b"0"))
    return PlainHead(line, fields, length, data[:size], rest) if length <= LARGEST_BODY else None
