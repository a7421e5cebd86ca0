"""The digests by which large bodies are matched: of the whole, or of each part of a multipart body.

Size and type alone make a body large, not its transport, so that a request has one key. Digests are
computed piece by piece.
"""

import hashlib
import re
from collections.abc import Iterable

from tapeway.core.digests import sha256
from tapeway.core.http import forms
from tapeway.core.http.chunks import AwsChunks, MalformedChunks
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json
from tapeway.core.matching.normalisers import HexText
from tapeway.core.model.messages import LARGE_BODY, BodyFile, Headers, PartDigest
from tapeway.core.model.request_fields import AWS_CHUNKED, RequestFields, media_type
from tapeway.core.text import escape_octets

LARGE_JSON = 16 * 1024 * 1024
"""Largest JSON and form bodies that are matched by value, at several times their size in memory."""

LARGEST_PARSED = 4 * 1024 * 1024
"""Largest responses that are parsed although they are kept in files: at ten times their size in
memory, that is still less than a body may take."""

_FORM = b"application/x-www-form-urlencoded"
_PARSED_TYPES = (b"json", b"jsonl", b"jsonlines", b"event-stream", b"amazon.eventstream")
_CLOSING = b"--"


def largest_in_memory(fields: RequestFields) -> int:
    """The size up to which a request body with these fields is held in memory."""
    media = media_type(fields.content_type)
    by_value = media in (b"application/json", _FORM) or media.endswith(b"+json")
    return LARGE_JSON if by_value and not fields.content_encoding else LARGE_BODY


def is_parsed(headers: Headers, size: int) -> bool:
    """Whether a large response is parsed, for its token counts and for fields with secrets."""
    content_type = find_header(headers, b"content-type") or b""
    media = media_type(content_type)
    return size <= LARGEST_PARSED and media.endswith(_PARSED_TYPES)


def large_body_value(file: BodyFile) -> Json:
    """A large body in a request's document: for the match key and for people."""
    if file.parts is None:
        return {"sha256": HexText(file.digest), "size": file.size}
    if any(part.name is None for part in file.parts):
        return [{"name": part.name, "part": _part_value(part)} for part in file.parts]
    return grouped_by_name((part.name or "", _part_value(part)) for part in file.parts)


def grouped_by_name(pairs: Iterable[tuple[str, Json]]) -> dict[str, Json]:
    """The value of each name, or a list of its values.

    The order of names does not count; the order of the values of one name does.
    """
    grouped: dict[str, list[Json]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in grouped.items()}


def digest_body(fields: RequestFields, body: bytes) -> BodyFile:
    """The size and digests of a body in memory."""
    digester = BodyDigester(fields)
    digester.feed(body)
    return digester.finish()


class BodyDigester:
    """Computes size and digests of a body piece by piece, in bounded memory."""

    def __init__(self, fields: RequestFields) -> None:
        self._size = 0
        self._whole = hashlib.sha256()
        self._parts: _MultipartDigester | None = None
        coding = fields.content_encoding
        self._chunks = _ChunksDigester() if coding and AWS_CHUNKED in coding.lower() else None
        self._parts = _digester_of_parts(fields.content_type) if not coding else None

    def feed(self, piece: bytes) -> None:
        """Add the next piece."""
        self._size += len(piece)
        self._whole.update(piece)
        for apart in (self._parts, self._chunks):
            if apart is not None:
                apart.feed(piece)

    def finish(self) -> BodyFile:
        """The size and the digest; and the parts of a well-formed multipart body.

        A body in AWS's signed chunks has one part: the data.
        """
        apart = self._parts or self._chunks
        parts = None if apart is None else apart.finish()
        return BodyFile("", self._size, self._whole.hexdigest(), parts)


class _ChunksDigester:
    """Digests the data of a body in signed chunks, without the signatures of the request."""

    def __init__(self) -> None:
        self._framed: AwsChunks | None = AwsChunks()
        self._data = hashlib.sha256()

    def feed(self, piece: bytes) -> None:
        if self._framed is not None:
            try:
                self._data.update(self._framed.feed(piece))
            except MalformedChunks:
                self._framed = None

    def finish(self) -> tuple[PartDigest, ...] | None:
        if self._framed is None or not self._framed.ended:
            return None
        return (PartDigest(None, None, None, self._data.hexdigest()),)


def _digester_of_parts(content_type: bytes) -> "_MultipartDigester | None":
    """A digester for the parts of a body of this type, None for a type without parts."""
    if content_type.partition(b"/")[0].strip().lower() != b"multipart":
        return None
    delimiter = forms.part_delimiter(content_type)
    return None if delimiter is None else _MultipartDigester(delimiter)


class _MultipartDigester:
    """The parts of a multipart body, as `forms.parse_multipart` would find them in the whole of it."""

    def __init__(self, delimiter: re.Pattern[bytes]) -> None:
        self._delimiter = delimiter
        # A delimiter that is cut is recognised only when its line has ended.
        self._held_back = len(delimiter.pattern) + forms.MAX_PADDING
        self._buffer = bytearray(b"\r\n")
        self._part: _PartDigester | None = None
        self._found: list[PartDigest] = []
        self._malformed = False

    def feed(self, data: bytes) -> None:
        if self._malformed:
            return
        self._buffer += data
        start = 0
        for match in self._delimiter.finditer(self._buffer):
            self._feed_part(start, match.start())
            self._end_part()
            self._part = _PartDigester()
            start = match.end()
        if (end := len(self._buffer) - self._held_back) > start:
            self._feed_part(start, end)
            start = end
        del self._buffer[:start]

    def finish(self) -> tuple[PartDigest, ...] | None:
        self._feed_part(0, len(self._buffer))
        if self._malformed or self._part is None or not self._part.closes:
            return None
        return tuple(self._found)

    def _feed_part(self, start: int, end: int) -> None:
        if self._part is not None:
            self._part.feed(bytes(self._buffer[start:end]))

    def _end_part(self) -> None:
        if self._part is None:
            return
        if (part := self._part.finish()) is None:
            self._malformed = True
        else:
            self._found.append(part)


class _PartDigester:
    """The bytes behind one delimiter: a part's head, then its content."""

    def __init__(self) -> None:
        self._head = b""
        self._part: forms.FormPart | None = None
        self._content = hashlib.sha256()
        self._inner: _MultipartDigester | None = None
        """Digests the parts of a part that has some."""

    @property
    def closes(self) -> bool:
        return self._part is None and self._head.startswith(_CLOSING)

    def feed(self, data: bytes) -> None:
        if self._part is not None:
            self._add(data)
        elif len(self._head) <= forms.MAX_HEAD + forms.MAX_PADDING:
            self._head += data
            if not self._head.startswith(_CLOSING):
                self._part = forms.parse_part(self._head)
                if self._part is not None:
                    kind = (self._part.content_type or "").encode("utf-8", "surrogateescape")
                    self._inner = _digester_of_parts(kind)
                    self._add(self._part.body)
                    self._head = b""

    def _add(self, data: bytes) -> None:
        self._content.update(data)
        if self._inner is not None:
            self._inner.feed(data)

    def finish(self) -> PartDigest | None:
        part = self._part
        if part is None:
            return None
        name, filename, kind = map(_text, (part.name, part.filename, part.content_type))
        parts = None if self._inner is None else self._inner.finish()
        if parts is None or kind is None:
            return PartDigest(name, filename, kind, self._content.hexdigest())
        # A nested multipart body has new boundaries in each request.
        kind = forms.without_boundary(kind.encode()).decode()
        return PartDigest(name, filename, kind, sha256(repr(parts).encode()).hexdigest())


def _part_value(part: PartDigest) -> Json:
    about = {"filename": part.filename, "type": part.content_type}
    known: dict[str, Json] = {name: value for name, value in about.items() if value is not None}
    return known | {"sha256": HexText(part.digest)}


def _text(value: str | None) -> str | None:
    """As JSON."""
    return None if value is None else escape_octets(value)
