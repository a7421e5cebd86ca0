"""What a large body is to matching: its digest, or those of its parts, read piece by piece.

Whether a body counts as large is told by its size and type alone, never by how it came, so that a
request has one key.
"""

import hashlib
import re

from tapeway.core.http import forms
from tapeway.core.http.headers import find_header, media_type, request_fields
from tapeway.core.json_text import Json
from tapeway.core.matching.normalisers import Spelled
from tapeway.core.model.messages import LARGE_BODY, BodyFile, Headers, PartDigest
from tapeway.core.text import escape_octets

LARGE_JSON = 16 * 1024 * 1024
"""Up to here JSON and forms are read by value, which takes several times their size in memory."""

LOOKED_INTO = 4 * 1024 * 1024
"""Up to here a large answer is read whole for what it tells: at ten times its size in memory, still
less than a body may take."""

_BY_VALUE = b"application/x-www-form-urlencoded"
_TOLD = (b"json", b"jsonl", b"jsonlines", b"event-stream")
_DASHES = b"--"


def most_in_memory(headers: Headers) -> int:
    """How large a body with these fields may be to be taken in memory."""
    header = request_fields(headers)
    media = media_type(header.content_type)
    by_value = media in (b"application/json", _BY_VALUE) or media.endswith(b"+json")
    return LARGE_JSON if by_value and not header.content_encoding else LARGE_BODY


def is_looked_into(headers: Headers, size: int) -> bool:
    """Whether a large answer is to be read by value, for its tokens and the fields of secrets."""
    content_type = find_header(headers, b"content-type") or b""
    media = media_type(content_type)
    return size <= LOOKED_INTO and media.endswith(_TOLD)


def said(file: BodyFile) -> Json:
    """What a large body says, for people and for the match key."""
    if file.parts is None:
        return {"sha256": Spelled(file.digest), "size": file.size}
    if any(part.name is None for part in file.parts):
        return [{"name": part.name, "part": _said(part)} for part in file.parts]
    # The order of names does not matter, that of one name's parts does.
    grouped: dict[str, list[Json]] = {}
    for part in file.parts:
        grouped.setdefault(part.name or "", []).append(_said(part))
    return {name: found[0] if len(found) == 1 else found for name, found in grouped.items()}


def digested(headers: Headers, body: bytes) -> BodyFile:
    """What a large body in memory would be in a file."""
    digester = Digester(headers)
    digester.feed(body)
    return digester.finish()


class Digester:
    """Takes in a body piece by piece and tells what it is, at a bounded cost in memory."""

    def __init__(self, headers: Headers) -> None:
        header = request_fields(headers)
        self._size = 0
        self._whole = hashlib.sha256()
        self._parts: _Parts | None = None
        media = header.content_type.partition(b"/")[0].strip().lower()
        if media == b"multipart" and not header.content_encoding:
            delimiter = forms.part_delimiter(header.content_type)
            self._parts = None if delimiter is None else _Parts(delimiter)

    def feed(self, piece: bytes) -> None:
        """Take in the next piece."""
        self._size += len(piece)
        self._whole.update(piece)
        if self._parts is not None:
            self._parts.feed(piece)

    def finish(self) -> BodyFile:
        """The size, the digest, and the parts where it is a multipart body as it should be."""
        parts = None if self._parts is None else self._parts.finish()
        return BodyFile("", self._size, self._whole.hexdigest(), parts)


class _Parts:
    """The parts of a multipart body, as `multipart.parse` would find them in the whole of it."""

    def __init__(self, delimiter: re.Pattern[bytes]) -> None:
        self._delimiter = delimiter
        # A delimiter that is cut is only known for one when its line has ended.
        self._behind = len(delimiter.pattern) + forms.MAX_PADDING
        self._waiting = bytearray(b"\r\n")
        self._piece: _Piece | None = None
        self._found: list[PartDigest] = []
        self._broken = False

    def feed(self, data: bytes) -> None:
        if self._broken:
            return
        self._waiting += data
        start = 0
        for match in self._delimiter.finditer(self._waiting):
            self._pass(start, match.start())
            self._end_piece()
            self._piece = _Piece()
            start = match.end()
        if (end := len(self._waiting) - self._behind) > start:
            self._pass(start, end)
            start = end
        del self._waiting[:start]

    def finish(self) -> tuple[PartDigest, ...] | None:
        self._pass(0, len(self._waiting))
        if self._broken or self._piece is None or not self._piece.closes:
            return None
        return tuple(self._found)

    def _pass(self, start: int, end: int) -> None:
        if self._piece is not None:
            self._piece.feed(bytes(self._waiting[start:end]))

    def _end_piece(self) -> None:
        if self._piece is None:
            return
        if (part := self._piece.finish()) is None:
            self._broken = True
        else:
            self._found.append(part)


class _Piece:
    """What comes behind one delimiter: a part's head, then its content."""

    def __init__(self) -> None:
        self._head = b""
        self._part: forms.FormPart | None = None
        self._content = hashlib.sha256()

    @property
    def closes(self) -> bool:
        return self._part is None and self._head.startswith(_DASHES)

    def feed(self, data: bytes) -> None:
        if self._part is not None:
            self._content.update(data)
        elif len(self._head) <= forms.MAX_HEAD + forms.MAX_PADDING:
            self._head += data
            if not self._head.startswith(_DASHES):
                self._part = forms.parse_part(self._head)
                if self._part is not None:
                    self._content.update(self._part.body)
                    self._head = b""

    def finish(self) -> PartDigest | None:
        part = self._part
        if part is None:
            return None
        name, filename, kind = map(_text, (part.name, part.filename, part.content_type))
        return PartDigest(name, filename, kind, self._content.hexdigest())


def _said(part: PartDigest) -> Json:
    about = {"filename": part.filename, "type": part.content_type}
    known: dict[str, Json] = {name: value for name, value in about.items() if value is not None}
    return known | {"sha256": Spelled(part.digest)}


def _text(value: str | None) -> str | None:
    """As JSON can hold it."""
    return None if value is None else escape_octets(value)
