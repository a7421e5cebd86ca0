"""The octets of a body that are no text: a placeholder among them has the length of the secret.

A binary format states the lengths of fields, and only the format says where. In a text, a quote, the
end of the line or a tag ends a field, so a placeholder there may be longer.

Where in doubt, octets are no text: a placeholder of the secret's length breaks no text.
"""

import re
from functools import lru_cache

from tapeway.core.model.request_fields import media_type
from tapeway.core.redaction.body_fields import find_parts
from tapeway.core.text import Utf16Text, decode_utf8, has_controls

_CLOSING = {b"{": b"}", b"[": b"]", b"<": b">"}
_BLANK = b" \t\r\n\x1e"

_TEXT = re.compile(rb"text/|.*(?:json|xml|yaml|script|graphql)")
"""Media types of text, by what the names of subtypes have in common."""

_UNRELIABLE = frozenset({b"", b"application/x-www-form-urlencoded"})
"""Media types that say nothing: curl sends every file as a form."""

_PART_TYPE = re.compile(rb"^content-type:[ \t]*([^\r\n]+)", re.IGNORECASE | re.MULTILINE)


def binary_places(
    body: bytes, content_type: bytes, wide: Utf16Text | None = None
) -> list[tuple[int, int]]:
    """Where the octets of a body that are no text start and end.

    The parts of a multipart body are looked at one by one. `wide` is the body as UTF-16, if it is:
    the places are then those of its text.
    """
    if wide is not None:
        return [(0, len(wide.text))] if has_controls(wide.text) else []
    if media_type(content_type).startswith(b"multipart/"):
        return [
            (start, end)
            for head, start, end in find_parts(body, content_type)
            if not _is_text(body[start:end], _type_of(head))
        ]
    return [] if _is_text(body, content_type) else [(0, len(body))]


@lru_cache(maxsize=256)
def names_text(content_type: bytes) -> bool:
    """Whether a media type is one of text."""
    return _TEXT.match(media_type(content_type)) is not None


def _is_text(octets: bytes, content_type: bytes) -> bool:
    if has_controls(octets):
        return False
    if names_text(content_type) or _is_document(octets):
        return True
    return media_type(content_type) in _UNRELIABLE and decode_utf8(octets) is not None


def _is_document(octets: bytes) -> bool:
    """Whether this is JSON or XML, whatever its type says."""
    text = octets.strip(_BLANK)
    return bool(text) and text[-1:] == _CLOSING.get(text[:1])


def _type_of(head: bytes) -> bytes:
    named = _PART_TYPE.search(head)
    return named[1] if named is not None else b""
