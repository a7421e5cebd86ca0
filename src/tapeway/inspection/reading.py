"""A recorded message for reading: headers, body as text or octets, and media.

Bodies are cut to a head; media inside JSON are only located.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from tapeway.conversations.model import image_type
from tapeway.core.http.content_codings import content_coding, decode
from tapeway.core.http.forms import parse_multipart
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, NotJson, parse
from tapeway.core.matching.document import may_be_json
from tapeway.core.matching.json_paths import path_text, texts_in
from tapeway.core.model.messages import Headers, Request, Response
from tapeway.core.model.request_fields import media_type
from tapeway.core.text import decode_utf8

BodyKind = Literal["empty", "json", "form", "text", "bytes"]

HEAD = 1024 * 1024
"""Bytes of a body that are shown."""

MOST_READ = 8 * 1024 * 1024
"""A body in a larger file is read no further than its head."""

_MOST_MEDIA = 100
_MOST_PARTS = 100
_MOST_PREVIEWS = 4 * 1024 * 1024
_PART_TEXT = 2000
"""Characters of a part's text."""
_SHORTEST_MEDIA = 64
_DATA_URL = "data:"
_FORM = b"application/x-www-form-urlencoded"

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"%PDF-", "application/pdf"),
    (b"\x1aE\xdf\xa3", "video/webm"),
)
"""What files of these types begin with."""
_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}
_SIGNED = 12


@dataclass(frozen=True, slots=True)
class HeldBody:
    """A body as far as it was read: all of it, or its head. `digest` names the file it is in."""

    octets: bytes
    size: int
    digest: str | None = None

    @property
    def is_whole(self) -> bool:
        return len(self.octets) == self.size


def held_body(message: Request | Response) -> HeldBody:
    """The body of a message with its body in memory, decoded."""
    octets = message.body
    coding = content_coding(message.headers)
    plain = decode(coding, octets) if coding else octets
    octets = octets if plain is None else plain
    return HeldBody(octets, len(octets))


def headers_part(headers: Headers) -> Json:
    """Header fields in order, as pairs of name and value."""
    return [
        [name.decode("latin-1"), value.decode("utf-8", "backslashreplace")]
        for name, value in headers
    ]


def body_part(body: HeldBody, headers: Headers) -> dict[str, Json]:
    """A body for reading; above 1 MiB its head."""
    content_type = find_header(headers, b"content-type") or b""
    kind, text, value = _read(body, content_type)
    is_cut = body.size > HEAD
    octets = body.octets[:HEAD] if text is None else b""
    if text is not None and is_cut:
        text = body.octets[:HEAD].decode("utf-8", "ignore")
    return {
        "kind": kind,
        "media_type": media_type(content_type).decode("latin-1"),
        "size": body.size,
        "text": text,
        "base64": b64encode(octets).decode() if octets else None,
        "cut": is_cut,
        "sha256": body.digest,
        "media": [*islice(_media(body, content_type, kind, value), _MOST_MEDIA)],
        "parts": [*_parts(body, content_type)],
    }


def _parts(body: HeldBody, content_type: bytes) -> Iterator[Json]:
    """The parts of a multipart body, with previews: the start of a text, an image, a sound."""
    if not body.is_whole or not media_type(content_type).startswith(b"multipart/"):
        return
    room = _MOST_PREVIEWS
    for part in islice(parse_multipart(content_type, body.octets) or (), _MOST_PARTS):
        octets = part.body
        media = image_type(octets) or _by_signature(octets[:_SIGNED])
        shown = media.startswith(("image/", "audio/")) and len(octets) <= room
        room -= len(octets) if shown else 0
        text = None if media else decode_utf8(octets)
        yield {
            "name": part.name,
            "filename": part.filename,
            "media_type": media or part.content_type,
            "size": len(octets),
            "text": None if text is None else text[:_PART_TEXT],
            "cut": text is not None and len(text) > _PART_TEXT,
            "base64": b64encode(octets).decode() if shown else None,
        }


def _read(body: HeldBody, content_type: bytes) -> tuple[BodyKind, str | None, Json]:
    """A body as kind, text (None for binary) and value (JSON only)."""
    if not body.size:
        return "empty", "", None
    text = decode_utf8(body.octets)
    if text is None and not body.is_whole:
        # The head may end within a character.
        text = decode_utf8(body.octets[:-3]) or decode_utf8(body.octets[:-2])
    if text is None:
        return "bytes", None, None
    if body.is_whole and may_be_json(content_type, body.octets):
        with suppress(NotJson):
            return "json", text, parse(body.octets)
    return ("form" if media_type(content_type) == _FORM else "text"), text, None


def _media(
    body: HeldBody, content_type: bytes, kind: BodyKind, value: Json
) -> Iterator[dict[str, Json]]:
    if kind == "json":
        for steps, text in texts_in(value):
            if (embedded := embedded_media(text)) is not None:
                media, size, encoding = embedded
                yield _medium(path_text(steps), [*steps], media, size, encoding)
        return
    if kind == "bytes":
        named = media_type(content_type).decode("latin-1")
        known = named if named.partition("/")[0] in ("image", "audio", "video") else ""
        if media := known or _by_signature(body.octets[:_SIGNED]):
            yield _medium("", [], media, body.size, "raw")


def embedded_media(text: str) -> tuple[str, int, str] | None:
    """The media type, size and encoding of media that fill a text; None for other texts.

    Base64 without a media type beside it is recognised by its beginning.
    """
    if len(text) < _SHORTEST_MEDIA:
        return None
    if text.startswith(_DATA_URL):
        head, comma, data = text.removeprefix(_DATA_URL).partition(",")
        media, *options = head.split(";")
        if not comma or "base64" not in options:
            return None
        return media or "text/plain", _decoded_size(data), "data_url"
    try:
        start = b64decode(text[: _SIGNED // 3 * 4], validate=True)
    except (NotBase64, ValueError):
        return None
    media_type_of_data = _by_signature(start)
    return None if not media_type_of_data else (media_type_of_data, _decoded_size(text), "base64")


def _by_signature(start: bytes) -> str:
    if start.startswith(b"RIFF"):
        return _RIFF.get(start[8:12], "")
    if start[4:8] == b"ftyp":
        return "video/mp4"
    return next((media for mark, media in _SIGNATURES if start.startswith(mark)), "")


def _decoded_size(data: str) -> int:
    return max(0, len(data) * 3 // 4 - data[-2:].count("="))


def _medium(path: str, steps: list[Json], media: str, size: int, encoding: str) -> dict[str, Json]:
    return {"path": path, "steps": steps, "media_type": media, "size": size, "encoding": encoding}
