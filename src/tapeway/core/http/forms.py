"""Form bodies: multipart (RFC 2046, RFC 7578) as far as matching needs it, and URL-encoded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from tapeway.core.json_text import Json

_BOUNDARY = re.compile(rb'boundary=(?:"([^"]+)"|([^\s;,"]+))', re.IGNORECASE)
_BOUNDARY_PARAMETER = re.compile(rb';[ \t]*boundary=(?:"[^"\r\n]*"|[^;\s,"]+)', re.IGNORECASE)
_HTTP_MESSAGE = b"application/http"
_PARAMETER = re.compile(r';\s*(name|filename)\*?=(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', re.IGNORECASE)

MAX_PADDING = 256
"""How many blanks may follow a delimiter on its line."""

MAX_HEAD = 64 * 1024
"""How much of a large body, which is read in pieces, may have to be searched together."""


MOST_PAIRS = 10_000
LONGEST_PAIR = 64 * 1024
"""A body with more or longer pairs is no form: curl sends every file as one."""


@dataclass(frozen=True, slots=True)
class FormPart:
    """A field or file of a form, or a nameless part of any other multipart body."""

    name: str | None
    filename: str | None
    content_type: str | None
    body: bytes


def parse_multipart(content_type: bytes, body: bytes) -> list[FormPart] | None:
    """The parts in order, or None for a body that contradicts the content type."""
    delimiter = part_delimiter(content_type)
    if delimiter is None:
        return None
    pieces = delimiter.split(b"\r\n" + body)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        return None
    parts = [parse_part(piece) for piece in pieces[1:-1]]
    return None if None in parts else [part for part in parts if part is not None]


def inner_multipart(content_type: bytes, body: bytes) -> tuple[bytes, list[FormPart]] | None:
    """The head and the parts inside a part of this type, None without parts.

    The part is a multipart body, or an HTTP message around a multipart body (OData's change sets).
    """
    head, media = b"", content_type
    if _media(content_type) == _HTTP_MESSAGE:
        head, separator, body = body.partition(b"\r\n\r\n")
        if not separator or len(head) > MAX_HEAD:
            return None
        media = _fields(head).get("content-type", "").encode("utf-8", "surrogateescape")
    if not _media(media).startswith(b"multipart/"):
        return None
    parts = parse_multipart(media, body)
    return None if parts is None else (head, parts)


def without_boundary(text: bytes) -> bytes:
    """A content type, or a head with a content type, without the boundary."""
    return _BOUNDARY_PARAMETER.sub(b"", text)


def part_delimiter(content_type: bytes) -> re.Pattern[bytes] | None:
    """What begins each part, or None where the content type names no boundary."""
    name = boundary(content_type)
    if name is None:
        return None
    # A line that only begins like the boundary is content.
    dashed = re.escape(b"\r\n--" + name)
    return re.compile(dashed + rb"(?=--|[ \t]{0,%d}\r\n)" % MAX_PADDING)


def boundary(content_type: bytes) -> bytes | None:
    """The boundary that a multipart content type names."""
    match = _BOUNDARY.search(content_type)
    return None if match is None else match[1] or match[2]


def parse_part(piece: bytes) -> FormPart | None:
    """The part between two delimiters, or None if it is malformed."""
    # The rest of a delimiter's line is padding (RFC 2046 section 5.1.1).
    padding, line_end, rest = piece.partition(b"\r\n")
    if padding.strip(b" \t") or not line_end:
        return None
    head, separator, body = (b"\r\n" + rest).partition(b"\r\n\r\n")
    if not separator or len(head) > MAX_HEAD:
        return None
    fields = _fields(head)
    parameters = {
        name.lower(): quoted or bare
        for name, quoted, bare in _PARAMETER.findall(fields.get("content-disposition", ""))
    }
    return FormPart(
        parameters.get("name"), parameters.get("filename"), fields.get("content-type"), body
    )


def is_form(body: bytes) -> bool:
    """Whether a body of the type URL-encoded form is read as a form, not as bytes."""
    if not body.isascii() or body.count(b"&") >= MOST_PAIRS:
        return False
    return len(body) <= LONGEST_PAIR or max(map(len, body.split(b"&"))) <= LONGEST_PAIR


def parse_form(body: bytes) -> dict[str, Json]:
    """The fields of a URL-encoded form; a repeated name has a list of its values.

    Raises UnicodeDecodeError for a body that is not UTF-8.
    """
    values: dict[str, list[Json]] = {}
    for name, value in parse_qsl(body.decode("utf-8"), keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}


def dump_form(form: Mapping[str, Json]) -> bytes:
    """The URL-encoded body of some fields. Values of a repeated name are adjacent."""
    pairs: list[tuple[str, str]] = []
    for name, value in form.items():
        values = value if isinstance(value, list) else [value]
        pairs.extend((name, str(item)) for item in values)
    return urlencode(pairs).encode("ascii")


def _media(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()


def _fields(head: bytes) -> dict[str, str]:
    fields = {}
    for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    return fields
