"""Plain heads: heads of ordinary requests whose body has a Content-Length or is empty."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tapeway.core.http.connection_logins import is_connection_login
from tapeway.core.http.headers import CASSETTE_HEADER, FAULT_HEADER
from tapeway.core.http.sdk_conventions import RETRIES_HEADER, TRIES_HEADER, attempt_number
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import (
    AWS_PAYLOAD,
    AWS_PAYLOAD_HEADER,
    MATCH_KEY_HEADERS,
    decides,
)
from tapeway.core.model.values import value_class
from tapeway.core.redaction.credentials import is_telling
from tapeway.providers.paths import PROVIDER_HEADERS

LARGEST_HEAD = 4096
LARGEST_BODY = 64 * 1024
"""The body of a plain request; larger ones come in several segments."""
_MOST_FIELDS = 64

HEAD_END = b"\r\n\r\n"
_METHODS = (b"GET ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}+):([!-~ \t]*+)")
_DIGITS = re.compile(rb"[0-9]{1,6}")

_CODING = b"content-encoding"
_IN_KEY = MATCH_KEY_HEADERS - {_CODING, b"content-range"} | {b"content-type"}
"""Fields that count in the match key of a plain request."""
_READ = _IN_KEY | {
    *(b"host", b"connection", b"content-length", b"user-agent"),
    *(b"origin", b"sec-fetch-site"),
    *(RETRIES_HEADER, TRIES_HEADER),
    *(CASSETTE_HEADER, *PROVIDER_HEADERS),
}
"""Fields that the front reads. A plain head has each at most once."""
_FRAMES = frozenset(
    {
        *(b"expect", b"upgrade", b"transfer-encoding", b"proxy-connection", b"http2-settings"),
        b"sec-websocket-key1",
    }
)
"""Fields that decide how a request is read. No plain head has them."""
_NO_HIT = frozenset(
    {
        *(_CODING, AWS_PAYLOAD_HEADER, FAULT_HEADER),
        *(b"server", b"etag", b"content-range", b"content-location", b"max-forwards"),
    }
)
"""Fields with which no request is a hit: they describe a coding or ask for a fault, or aiohttp refuses
them twice.
"""
MOST_LINES = 4096
MOST_HEADS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    """The meaning of a header line. Equal lines share an object."""

    name: bytes
    """In lower case."""
    value: bytes
    written: bytes = b""
    """The name as it is written."""


_NOT_PLAIN = _Field(b"", b"")
_DECIDING = _Field(b"*", b"")
"""Stands for a field with which no request is a hit, whatever its value."""
_LENGTH = _Field(b"content-length", b"")
"""Stands for a length, whatever its value."""
_PRESENT = {name: _Field(name, b"") for name in (b"connection", b"user-agent", *PROVIDER_HEADERS)}
"""Fields of `_READ` whose value decides nothing."""

_Fields = tuple[_Field | None, ...]
"""The meaning of a head's lines in order; None for a field that the front ignores."""


class _Lines(dict[bytes, _Field | None]):
    """What the lines of fields say, remembered: clients repeat nearly all of their lines."""

    def __missing__(self, line: bytes) -> _Field | None:
        field = _read_line(line)
        if len(self) >= MOST_LINES:
            self.clear()
        self[line] = field
        return field


_field_of = _Lines().__getitem__


def _read_line(line: bytes) -> _Field | None:
    if (match := _FIELD.fullmatch(line)) is None or (name := match[1].lower()) in _FRAMES:
        return _NOT_PLAIN
    value = match[2].strip(b" \t")
    if name == AWS_PAYLOAD_HEADER and not value.startswith(AWS_PAYLOAD):
        return None
    if name in _NO_HIT or is_connection_login(name, value):
        return _DECIDING
    if name == b"connection" and value.lower() != b"keep-alive":
        return _NOT_PLAIN
    if name == b"content-length":
        return _LENGTH if _DIGITS.fullmatch(value) else _NOT_PLAIN
    if name not in _READ and not decides(name, value):
        return None
    return _PRESENT.get(name) or _Field(name, value, match[1])


@dataclass(frozen=True, slots=True, eq=False)
class PlainFields:
    """What the fields of a plain head say that are looked at, but for the length of the body."""

    by_name: dict[bytes, bytes]
    """Their values by name in lower case."""
    in_key: Headers
    """The fields that count in the match key, as written."""
    length_at: int | None
    """The line with the Content-Length, if any."""
    may_be_hit: bool
    """Whether a hit may answer: no field says otherwise."""
    attempt: int | None
    """The number of the try within a call, if the client sends a number."""


class _Heads(dict[_Fields, PlainFields | None]):
    """What fields say together, remembered: hardly any field that is looked at differs from request to
    request. None where the head is not plain.
    """

    def __missing__(self, fields: _Fields) -> PlainFields | None:
        read = _read_fields(fields)
        if len(self) >= MOST_HEADS:
            self.clear()
        self[fields] = read
        return read


_heads = _Heads()


def _read_fields(fields: _Fields) -> PlainFields | None:
    known_fields = [field for field in fields if field is not None]
    by_name = {field.name: field.value for field in known_fields}
    if _NOT_PLAIN in known_fields or len(by_name) < len(known_fields):
        return None
    length_at = fields.index(_LENGTH) if _LENGTH in known_fields else None
    in_key = tuple(
        [
            (field.written, field.value)
            for field in known_fields
            if field.name in _IN_KEY or decides(field.name, field.value)
        ]
    )
    may_be_hit = _DECIDING not in known_fields
    return PlainFields(by_name, in_key, length_at, may_be_hit, attempt_number(by_name))


@value_class
class PlainHead:
    """A plain head: the first line, the meaning of the fields, and the length of the body."""

    line: bytes
    fields: PlainFields
    length: int
    text: bytes
    """The whole head, up to the empty line."""
    rest: bytes
    """What came after it."""

    @property
    def headers(self) -> Headers:
        """All fields as they are written."""
        return fields_of(self.text)


def fields_of(text: bytes) -> Headers:
    """The fields of a plain head as they are written."""
    _, *lines = text.split(b"\r\n")
    return _read(lines)


def telling_fields_of(text: bytes) -> Headers:
    """The fields of a plain head that may hold a credential or tell callers apart."""
    _, *lines = text.split(b"\r\n")
    return _read(filter(_is_telling, lines))


def _read(lines: Iterable[bytes]) -> Headers:
    fields = [line.partition(b":") for line in lines]
    return tuple([(name, value.strip(b" \t")) for name, _, value in fields])


class _TellingLines(dict[bytes, bool]):
    """Whether the line of a field may hold a credential or tell callers apart; most lines come again."""

    def __missing__(self, line: bytes) -> bool:
        if len(self) >= MOST_LINES:
            self.clear()
        self[line] = telling = is_telling(line.partition(b":")[0].lower())
        return telling


_is_telling = _TellingLines().__getitem__


def text_of(headers: Headers) -> bytes:
    """Fields as the text of a head without the first line. `fields_of` reads them back."""
    return b"\r\n".join((b"", *map(b": ".join, headers)))


def read_plain_head(data: bytes) -> PlainHead | None:
    """The plain head at the beginning of some bytes, or None."""
    text, end, rest = data.partition(HEAD_END)
    if not end or len(text) > LARGEST_HEAD:
        return None
    lines = text.split(b"\r\n")
    line = lines.pop(0)
    # A line with one space is of HTTP/0.9, and the front refuses it.
    if len(lines) > _MOST_FIELDS or not line.startswith(_METHODS) or line.count(b" ") != 2:
        return None
    if (fields := _heads[tuple(map(_field_of, lines))]) is None:
        return None
    length = 0 if fields.length_at is None else int(lines[fields.length_at].partition(b":")[2])
    return PlainHead(line, fields, length, text, rest) if length <= LARGEST_BODY else None
