"""Texts of several lines as lists of lines: a diff of the file shows the lines that differ.

JSON cannot break a string: a stream with any number of events would be a single line of a file. A
long `text` is therefore a list of texts in `text_lines`, a field that AgentTape ignores:
AgentTape's `text` is a text only. In recordings by tapeway, lists in `text` and `body_b64`, as in
the parts of a multipart body, are joined too. Only files have lists.
"""

import re
from collections.abc import Callable

from tapeway.core import loose_json
from tapeway.core.json_text import Json
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.framings import FRAMINGS, LINES, Framing
from tapeway.formats.fields import Document

NAME = "text_lines"
"""The field in place of `text`."""

_JOINED = ("text", NAME, "body_b64")
_BASE64 = re.compile(r".{1,76}")
"""As MIME breaks base64 (RFC 2045 section 6.8)."""

_Change = Callable[[Document], Document]


def spread(document: Document) -> Document:
    """An interaction's document, each event of a stream and each line of a part a separate text."""
    changed = document
    for name in ("response", "partial"):
        if isinstance(message := document.get(name), dict):
            changed = {
                **changed,
                name: _renamed(_with_lines(message, "text", _stream_lines(message))),
            }
    return _in_parts(spread_base64(changed), lambda part: _with_lines(part, "text", _lines(part)))


def spread_base64(document: Document) -> Document:
    """The document with the base64 of each part in lines, for a syntax that can break texts."""
    return _in_parts(document, lambda part: _with_lines(part, "body_b64", _base64_lines(part)))


def joined(document: Document) -> Document:
    """The document again, with each list joined to a single text."""
    changed = document
    for name in ("request", "response", "partial"):
        if (
            isinstance(message := document.get(name), dict)
            and (text_message := _join(message)) is not message
        ):
            changed = {**changed, name: text_message}
    return _in_parts(changed, _join)


def _in_parts(document: Document, change: _Change) -> Document:
    request = document.get("request")
    if not isinstance(request, dict) or "multipart" not in request:
        return document
    match request:
        case {"multipart": {"parts": list(parts)}}:
            changed: list[Json] = [
                change(part) if isinstance(part, dict) else part for part in parts
            ]
            field: Document = {**loose_json.fields(request["multipart"]), "parts": changed}
            return {**document, "request": {**request, "multipart": field}}
    return document


def _stream_lines(message: Document) -> list[str]:
    return _pieces(message, FRAMINGS.get(_kind(message)))


def _kind(message: Document) -> bytes:
    for name, value in loose_json.fields(message.get("headers")).items():
        if name.lower() == "content-type" and isinstance(value, str):
            return media_type(value.encode("utf-8", "replace"))
    return b""


def _lines(part: Document) -> list[str]:
    return _pieces(part, LINES)


def _pieces(message: Document, framing: Framing | None) -> list[str]:
    text = message.get("text")
    if framing is None or framing.pieces is None or not isinstance(text, str):
        return []
    return framing.pieces.findall(text)


def _base64_lines(part: Document) -> list[str]:
    return _BASE64.findall(text) if isinstance(text := part.get("body_b64"), str) else []


def _with_lines(message: Document, name: str, lines: list[str]) -> Document:
    return {**message, name: [*lines]} if len(lines) > 1 else message


def _renamed(message: Document) -> Document:
    if not isinstance(message.get("text"), list):
        return message
    return {NAME if name == "text" else name: value for name, value in message.items()}


def _join(message: Document) -> Document:
    # Not in a loop: nearly every message of every recording has none.
    if not (
        isinstance(message.get("text"), list)
        or isinstance(message.get(NAME), list)
        or isinstance(message.get("body_b64"), list)
    ):
        return message
    members: Document = {}
    for name, value in message.items():
        whole = _joined_text(value) if name in _JOINED else value
        named = name == NAME and isinstance(whole, str) and "text" not in message
        members["text" if named else name] = whole
    return members


def _joined_text(value: Json) -> Json:
    """The text of a list of texts; anything else unchanged, to be refused later."""
    if not isinstance(value, list):
        return value
    texts = [text for text in value if isinstance(text, str)]
    return "".join(texts) if len(texts) == len(value) else value
