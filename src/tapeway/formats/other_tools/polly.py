"""Recordings of Polly.JS, read only: an HTTP archive with a `_recordingName`.

Polly writes a body with a content coding as a JSON list of chunks. These are in base64, and until
version 4 in hexadecimal digits. Polly gives each recording once.
"""

import base64
import binascii
import re
from dataclasses import replace

from tapeway.core.cassette import cursors
from tapeway.core.http.content_codings import content_coding
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools import har
from tapeway.formats.other_tools.reading.http_call import header_bytes, json_value, text_bytes

_HEX = re.compile(r"(?:[0-9a-f]{2})*")


def recognises(value: Json) -> bool:
    """Whether a document looks like a recording of Polly.JS."""
    match value:
        case {"log": {"entries": [*_], "_recordingName": _}}:
            return True
        case {"log": {"entries": [*_], "creator": {"name": "Polly.JS"}}}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    cassette, losses = har.read_archive(value, fresh, _body)
    meta = cursors.meta_with_repeats(cassette.head.meta, "miss")
    return replace(cassette, head=replace(cassette.head, meta=meta)), losses


def _body(response: Fields) -> tuple[bytes, bool]:
    """The body, and whether Polly removed the content coding, as in browsers."""
    content = response.object("content")
    text, encoding = content.text("text"), content.text("encoding").lower()
    if not encoding and content.values.get("_isBinary") is True:
        encoding = "hex"
    coded = bool(content_coding(header_bytes(har.name_values(response))))
    chunks = json_value(text) if coded and text.startswith("[") else None
    if isinstance(chunks, list) and all(isinstance(chunk, str) for chunk in chunks):
        texts = [str(chunk) for chunk in chunks]
        if not encoding:
            encoding = "hex" if all(map(_HEX.fullmatch, texts)) else "base64"
        return b"".join([_bytes(chunk, encoding, content) for chunk in texts]), False
    return _bytes(text, encoding, content), True


def _bytes(text: str, encoding: str, content: Fields) -> bytes:
    try:
        match encoding:
            case "base64":
                return base64.b64decode("".join(text.split()), validate=True)
            case "hex":
                return bytes.fromhex(text)
    except (binascii.Error, ValueError):
        raise content.fault("text", f"is not valid {encoding}") from None
    return text_bytes(text)
