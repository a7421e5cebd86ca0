"""Texts and octets that AgentTape keeps beside a cassette, brought back to where they belong.

AgentTape writes all that have more than 4 KiB into `NAME.assets/` and leaves a reference with its digest.
"""

import base64
import hashlib
import re
from collections.abc import Callable

from tapeway.core.json_text import Json
from tapeway.formats.fault import FormatFault, Pointer

Fetch = Callable[[str], bytes | None]
"""Gives the content behind a digest `sha256:…`, or None where there is none."""

BYTES = "__agenttape_bytes__"
"""The only name in an object that stands for octets, in base64: how AgentTape writes small ones."""

_MARKER = "__agenttape_asset__"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def mentioned(text: bytes) -> bool:
    """Whether a cassette's text may hold a reference at all."""
    return _MARKER.encode() in text


def inline(value: Json, fetch: Fetch, at: Pointer) -> Json:
    """The value with every reference replaced by its content. Raises FormatFault for a lost one."""
    if isinstance(value, dict):
        if _MARKER in value:
            return _content(value, fetch, at)
        return {name: inline(inner, fetch, (*at, name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [inline(inner, fetch, (*at, index)) for index, inner in enumerate(value)]
    return value


def recalled(value: Json) -> Json:
    """The value with each reference replaced whose text is short enough to stand in it whole."""
    if isinstance(value, dict):
        preview = value.get("preview")
        if _MARKER in value and isinstance(preview, str) and value.get("encoding") == "utf-8":
            return (
                preview if len(preview.encode("utf-8", "replace")) == value.get("size") else value
            )
        return {name: recalled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [recalled(inner) for inner in value]
    return value


def _content(reference: dict[str, Json], fetch: Fetch, at: Pointer) -> Json:
    digest = reference[_MARKER]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise FormatFault("is a reference without a sha256 digest", at)
    content = fetch(digest)
    if content is None:
        raise FormatFault(f"the file of {digest} beside the cassette is missing: restore it", at)
    if "sha256:" + hashlib.sha256(content).hexdigest() != digest:
        raise FormatFault(f"the file of {digest} beside the cassette was changed: restore it", at)
    if reference.get("encoding") == "base64":
        return {BYTES: base64.b64encode(content).decode("ascii")}
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatFault(f"the file of {digest} beside the cassette is no text", at) from None
