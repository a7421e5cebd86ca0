"""The parts of a multipart body (RFC 2046, RFC 7578), as far as matching needs them."""

import re
from dataclasses import dataclass

_BOUNDARY = re.compile(rb'boundary=(?:"([^"]+)"|([^\s;,"]+))', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*(name|filename)\*?=(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', re.IGNORECASE)

MAX_PADDING = 256
MAX_HEAD = 64 * 1024
"""A large body is read in pieces: so much of it may have to be looked at together."""


@dataclass(frozen=True, slots=True)
class Part:
    """One field or file of a form, or one part of another multipart body, which has no name."""

    name: str | None
    filename: str | None
    content_type: str | None
    body: bytes


def parse(content_type: bytes, body: bytes) -> list[Part] | None:
    """The parts in order, or None where the body is not what its content type says."""
    found = delimiter(content_type)
    if found is None:
        return None
    pieces = found.split(b"\r\n" + body)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        return None
    parts = [part(piece) for piece in pieces[1:-1]]
    return None if None in parts else [each for each in parts if each is not None]


def delimiter(content_type: bytes) -> re.Pattern[bytes] | None:
    """What begins each part, or None where the content type names no boundary."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        return None
    # A line that only begins like the boundary is content.
    dashed = re.escape(b"\r\n--" + (match[1] or match[2]))
    return re.compile(dashed + rb"(?=--|[ \t]{0,%d}\r\n)" % MAX_PADDING)


def part(piece: bytes) -> Part | None:
    """What stands between two delimiters as a part, or None where it is none."""
    # What follows a delimiter on its line is padding (RFC 2046 section 5.1.1).
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
    return Part(
        parameters.get("name"), parameters.get("filename"), fields.get("content-type"), body
    )


def _fields(head: bytes) -> dict[str, str]:
    fields = {}
    for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    return fields
