"""OpenAI's images, made and changed, whole and streamed."""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tapeway.testing.answer import StandInAnswer
from tapeway.testing.openai import envelope
from tapeway.testing.reply import StandInState
from tapeway.testing.request import JsonObject, StandInRequest, at, text_at, tokens

_SIZE = "1024x1024"
_SIDE = 16
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a call asks for; a form says it in texts."""

    prompt: str
    count: int
    partial: int
    streamed: bool
    seed: bytes


def generate(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/images/generations: PNG pictures whose colours depend on the prompt, in base64."""
    wanted = _Wanted(
        text_at(call.json, "prompt"),
        _number(at(call.json, "n"), 1),
        _number(at(call.json, "partial_images"), 0),
        at(call.json, "stream") is True,
        b"",
    )
    return _pictures(call, state, wanted, "image_generation")


def edit(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/images/edits: the same, where the colours depend on the uploaded pictures too."""
    texts = {part.name: part.content.decode(errors="replace") for part in call.parts}
    uploaded = [part.content for part in call.parts if part.name in ("image", "image[]")]
    if not uploaded:
        return envelope.failure(400, call, state, "'image' is a required property")
    wanted = _Wanted(
        texts.get("prompt", ""),
        _number(texts.get("n"), 1),
        _number(texts.get("partial_images"), 0),
        texts.get("stream", "").lower() == "true",
        b"".join(uploaded),
    )
    return _pictures(call, state, wanted, "image_edit")


def _number(value: object, default: int) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 3 else default


def _pictures(
    call: StandInRequest, state: StandInState, wanted: _Wanted, kind: str
) -> StandInAnswer:
    if wanted.streamed:
        events = list(_events(state, wanted, kind))
        return envelope.streamed(call, state, events, {"type": "error"} | envelope.error_body(500))
    body: JsonObject = {
        "created": state.seconds(),
        "background": "opaque",
        "data": [{"b64_json": _picture(wanted, number)} for number in range(wanted.count)],
        "output_format": "png",
        "quality": "low",
        "size": _SIZE,
        "usage": _usage(wanted),
    }
    return envelope.answer(body, state)


def _events(state: StandInState, wanted: _Wanted, kind: str) -> Iterator[bytes]:
    common: JsonObject = {
        "created_at": state.seconds(),
        "size": _SIZE,
        "quality": "low",
        "background": "opaque",
        "output_format": "png",
    }
    for index in range(wanted.partial):
        part = {"partial_image_index": index, "b64_json": _picture(wanted, 100 + index)}
        yield envelope.event({"type": f"{kind}.partial_image"} | part | common)
    whole: JsonObject = {"b64_json": _picture(wanted, 0), "usage": _usage(wanted)}
    yield envelope.event({"type": f"{kind}.completed"} | whole | common)


def _usage(wanted: _Wanted) -> JsonObject:
    asked, made = tokens(wanted.prompt), 272 * wanted.count
    details = {"text_tokens": asked, "image_tokens": 0}
    used: JsonObject = {"input_tokens": asked, "output_tokens": made}
    return used | {"total_tokens": asked + made, "input_tokens_details": details}


def _picture(wanted: _Wanted, number: int) -> str:
    """A PNG (RFC 2083) of random colours in base64."""
    seed = wanted.seed + wanted.prompt.encode() + bytes([number])
    colours = hashlib.shake_256(seed).digest(_SIDE * _SIDE * 3)
    width = _SIDE * 3
    rows = b"".join(b"\0" + colours[at : at + width] for at in range(0, len(colours), width))
    head = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return base64.b64encode(_PNG + b"".join(_chunk(*chunk) for chunk in chunks)).decode()


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)
