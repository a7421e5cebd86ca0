"""Large binary bodies in files of their own: AgentTape's references, which it and tapeway read.

The file has the base64 that the field would have, in lines of 76 characters as in MIME.
"""

import re
from collections.abc import Callable

from tapeway.core.digests import sha256
from tapeway.core.json_text import Json
from tapeway.formats.fields import Document, as_object
from tapeway.formats.native.document import REFERENCE_NAME
from tapeway.formats.native.shared_parts import is_own

LARGE_BINARY = 32 * 1024
"""A binary body, or part of a multipart body, with so many bytes is in a file of its own."""

Keep = Callable[[bytes], None]
"""Writes the file with this content, named by its SHA-256."""

_FIELD = "body_b64"
_LINE = re.compile(r".{1,76}")


def moved_out(document: Document, keep: Keep) -> Document:
    """An interaction's document with references for its large binaries; each is given to `keep`.

    The very one given where it has none. Those of other tools are kept as they are.
    """
    if not is_own(document):
        return document
    found = document
    for name in ("request", "response", "partial"):
        message = document.get(name)
        if isinstance(message, dict) and (moved := _message(message, keep)) is not message:
            found = {**found, name: moved}
    return found


def _message(message: Document, keep: Keep) -> Document:
    field = as_object(message.get("multipart"))
    parts = field.get("parts")
    if not isinstance(parts, list):
        return _part(message, keep)
    moved: list[Json] = [_part(each, keep) if isinstance(each, dict) else each for each in parts]
    if all(new is old for new, old in zip(moved, parts, strict=True)):
        return message
    return {**message, "multipart": {**field, "parts": moved}}


def _part(message: Document, keep: Keep) -> Document:
    encoded = message.get(_FIELD)
    if not isinstance(encoded, str) or _size(encoded) < LARGE_BINARY:
        return message
    content = "".join([f"{line}\n" for line in _LINE.findall(encoded)]).encode()
    keep(content)
    reference: Document = {
        REFERENCE_NAME: f"sha256:{sha256(content).hexdigest()}",
        "encoding": "utf-8",
        "size": len(content),
    }
    return {**message, _FIELD: reference}


def _size(encoded: str) -> int:
    return len(encoded) // 4 * 3 - encoded[-2:].count("=")
