"""A multipart request body as parts, each with headers and content.

The boundary is in the request's `Content-Type`. A body that the parts would not give back byte for
byte is not divided: RFC 2046 section 5.1 allows text before the first part and behind the last.
"""

from collections.abc import Iterator

from tapeway.core.http import forms
from tapeway.core.json_text import Json
from tapeway.core.text import decode_utf8
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import bodies

NAME = "multipart"
"""The field that holds the parts."""
_PARTS, _END = "parts", "end"
_LINE_END = "\r\n"


def encode(body: bytes, content_type: str) -> dict[str, Json]:
    """The field that gives back exactly the body; none for a body that is not multipart."""
    if not body or not _is_multipart(content_type):
        return {}
    if (delimiter := forms.part_delimiter(_octets(content_type))) is None:
        return {}
    first, *rest = delimiter.split(b"\r\n" + body)
    if first or not rest:
        return {}
    parts: list[Json] = []
    for part_bytes in rest[:-1]:
        if (part := _encode_part(part_bytes)) is None:
            return {}
        parts.append(part)
    if (end := decode_utf8(rest[-1][2:])) is None:
        return {}
    field: Document = {_PARTS: parts}
    if end != _LINE_END:
        field[_END] = end
    members: dict[str, Json] = {NAME: field}
    return members if decode(Fields(members, ()), content_type) == body else {}


def decode(fields: Fields, content_type: str) -> bytes:
    """The body of the parts in a request's fields. Raises FormatFault."""
    boundary = forms.boundary(_octets(content_type))
    if boundary is None or not _is_multipart(content_type):
        raise fields.fault(NAME, "needs a 'Content-Type' of multipart with a boundary")
    field = fields.object(NAME)
    field.only((_PARTS, _END))
    opening = b"--" + boundary
    parts = [opening + b"\r\n" + _decode_part(part) for part in field.objects(_PARTS)]
    return b"\r\n".join([*parts, opening + b"--"]) + field.text(_END, _LINE_END).encode()


def _is_multipart(content_type: str) -> bool:
    return content_type.lstrip()[:10].lower() == "multipart/"


def _octets(content_type: str) -> bytes:
    return content_type.encode("latin-1", "replace")


def _encode_part(part: bytes) -> Document | None:
    """A part, from after the delimiter; None for a part in an unusual layout."""
    head, separator, content = part.partition(b"\r\n\r\n")
    if not separator:
        return None
    headers: Document = {}
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = [decode_utf8(piece) for piece in line.partition(b": ")]
        if not (name and colon) or value is None or name in headers:
            return None
        headers[name] = value
    return ({"headers": headers} if headers else {}) | bodies.encode(content, "")


def _decode_part(part: Fields) -> bytes:
    part.only(("headers", *bodies.NAMES))
    content = {name: member for name, member in part.values.items() if name != "headers"}
    return b"".join([*_lines(part.object("headers")), b"\r\n"]) + bodies.decode(
        Fields(content, part.at)
    )


def _lines(headers: Fields) -> Iterator[bytes]:
    for name in headers.values:
        value = headers.text(name)
        if "\r" in name + value or "\n" in name + value:
            raise headers.fault(name, "a header cannot hold a line break")
        yield f"{name}: {value}\r\n".encode()
