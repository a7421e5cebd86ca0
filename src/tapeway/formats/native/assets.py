"""Values in separate files: the references that AgentTape and tapeway read and write.

AgentTape moves out any text and bytes of more than 4 KiB, tapeway large binary bodies. The file has
the base64 of the field, in lines of 76 characters as in MIME.

Of a WebSocket session tapeway moves out large texts of base64 in the lines of its messages. The
file has the bytes themselves, and the reference stands in the line in place of the text.
"""

import base64
import binascii
import re
from collections.abc import Callable

from tapeway.core import loose_json
from tapeway.core.digests import sha256
from tapeway.core.json_text import Json, Pointer, dump
from tapeway.core.text import decode_utf8
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.repeated_parts import is_own

FetchAsset = Callable[[str], bytes | None]
"""Returns the content of the asset with a digest `sha256:…`, None where there is none."""


class AbsentAsset(bytes):
    """Stands for the content of an asset that is not at hand, where contents are only compared.

    Contents of one digest are equal. The stand-in can be read as bytes and as base64.
    """

    @classmethod
    def of(cls, digest: str) -> "AbsentAsset":
        """The stand-in for the asset with this digest."""
        return cls(base64.b64encode(digest.encode()))


BYTES_NAME = "__agenttape_bytes__"
"""The only name in an object that represents bytes, in base64: how AgentTape writes few bytes."""
REFERENCE_NAME = "__agenttape_asset__"
"""The name in an object that refers to an asset, by the digest."""

LARGE_BINARY = 32 * 1024
"""A binary body, or part of a multipart body, with so many bytes is in a separate file."""

Keep = Callable[[bytes], None]
"""Writes a file with the given content, named by the SHA-256."""

_FIELD = "body_b64"
_LINE = re.compile(r".{1,76}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# After a backslash a quote belongs to the content of a text.
_BASE64_TEXT = re.compile(rf'(?<!\\)"([A-Za-z0-9+/]{{{LARGE_BINARY * 4 // 3},}}+={{0,2}})"')
_REFERENCE_IN_LINE = re.compile(rf'{{"{REFERENCE_NAME}":"([^"]*)","encoding":"base64","size":\d+}}')


def no_assets(digest: str) -> bytes | None:
    """For a cassette without assets."""
    return None


def inlined(document: Document, fetch: FetchAsset | None, at: Pointer) -> Document:
    """An interaction's document with the assets. Raises FormatFault for a lost asset.

    Without `fetch` only a session is looked at: in other documents a reference has the wrong type.
    """
    if fetch is not None:
        whole_document = inline_assets(document, fetch, at)
        document = whole_document if isinstance(whole_document, dict) else document
    for name, text in _session_texts(document):
        if REFERENCE_NAME in text:
            whole = _whole_lines(text, fetch or no_assets, (*at, name, "text"))
            document = {**document, name: {**loose_json.fields(document[name]), "text": whole}}
    return document


def inline_assets(value: Json, fetch: FetchAsset, at: Pointer) -> Json:
    """The value with every reference replaced by the asset. Raises FormatFault for a lost asset."""
    if isinstance(value, dict):
        if REFERENCE_NAME in value:
            return _content(value, fetch, at)
        return {name: inline_assets(inner, fetch, (*at, name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [inline_assets(inner, fetch, (*at, index)) for index, inner in enumerate(value)]
    return value


def with_previews(value: Json) -> Json:
    """The value with each reference replaced by the preview where the preview is the whole text."""
    if isinstance(value, dict):
        preview = value.get("preview")
        if (
            REFERENCE_NAME in value
            and isinstance(preview, str)
            and value.get("encoding") == "utf-8"
        ):
            return (
                preview if len(preview.encode("utf-8", "replace")) == value.get("size") else value
            )
        return {name: with_previews(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_previews(inner) for inner in value]
    return value


def moved_out(document: Document, keep: Keep) -> Document:
    """An interaction's document with references for large binaries; `keep` gets each binary.

    Returns `document` itself if there are none. Foreign references stay unchanged.
    """
    if not is_own(document):
        return document
    changed = document
    for name in ("request", "response", "partial"):
        message = document.get(name)
        if isinstance(message, dict) and (moved := _message(message, keep)) is not message:
            changed = {**changed, name: moved}
    for name, text in _session_texts(changed):
        if (lines := _BASE64_TEXT.sub(lambda match: _line_reference(match, keep), text)) != text:
            changed = {**changed, name: {**loose_json.fields(changed[name]), "text": lines}}
    return changed


def _session_texts(document: Document) -> list[tuple[str, str]]:
    """The lines of a session, with the names of the answers that have them."""
    if document.get("kind") != "websocket" or not is_own(document):
        return []
    about = loose_json.fields(loose_json.fields(document.get("metadata")).get("websocket"))
    if not isinstance(about.get("session"), str):
        return []
    return [
        (name, text)
        for name in ("response", "partial")
        if isinstance(text := loose_json.fields(document.get(name)).get("text"), str)
    ]


def _line_reference(match: re.Match[str], keep: Keep) -> str:
    content = _decoded(match[1])
    if content is None or len(content) < LARGE_BINARY:
        return match[0]
    keep(content)
    return dump(
        {
            REFERENCE_NAME: f"sha256:{sha256(content).hexdigest()}",
            "encoding": "base64",
            "size": len(content),
        }
    ).decode()


def _decoded(text: str) -> bytes | None:
    """The bytes with exactly the given base64."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return content if base64.b64encode(content).decode() == text else None


def _whole_lines(text: str, fetch: FetchAsset, at: Pointer) -> str:
    def base64_of(match: re.Match[str]) -> str:
        content = _content({REFERENCE_NAME: match[1], "encoding": "base64"}, fetch, at)
        return f'"{loose_json.fields(content)[BYTES_NAME]}"'

    return _REFERENCE_IN_LINE.sub(base64_of, text)


def _message(message: Document, keep: Keep) -> Document:
    field = loose_json.fields(message.get("multipart"))
    parts = field.get("parts")
    if not isinstance(parts, list):
        return _part(message, keep)
    moved: list[Json] = [_part(part, keep) if isinstance(part, dict) else part for part in parts]
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


def _content(reference: dict[str, Json], fetch: FetchAsset, at: Pointer) -> Json:
    digest = reference[REFERENCE_NAME]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise FormatFault("is a reference without a sha256 digest", at)
    content = fetch(digest)
    if content is None:
        raise FormatFault(f"the file of {digest} beside the cassette is missing: restore it", at)
    is_absent = isinstance(content, AbsentAsset)
    if not is_absent and "sha256:" + sha256(content).hexdigest() != digest:
        raise FormatFault(f"the file of {digest} beside the cassette was changed: restore it", at)
    if reference.get("encoding") == "base64":
        return {BYTES_NAME: base64.b64encode(content).decode("ascii")}
    if (text := decode_utf8(content)) is None:
        raise FormatFault(f"the file of {digest} beside the cassette is no text", at)
    return text
