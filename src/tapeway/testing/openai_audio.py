"""OpenAI's speech, as bytes that come in chunks, and its transcriptions of uploads."""

import hashlib

from tapeway.testing import openai_edge
from tapeway.testing.answer import Answer, compact, halves, pretty, stream
from tapeway.testing.call import Call
from tapeway.testing.json_tree import JsonObject, text_at
from tapeway.testing.mishap import as_asked
from tapeway.testing.multipart import form_parts
from tapeway.testing.reply import pieces, tokens
from tapeway.testing.world import World

_CHUNK = 999
"""No multiple of a frame, so that frames are cut as networks cut them."""


def speak(call: Call, world: World) -> Answer:
    """POST /v1/audio/speech: bytes with an MP3 frame's head that are no text in any encoding."""
    noise = hashlib.shake_256(text_at(call.json, "input").encode()).digest(4000)
    sound = b"\xff\xf3\xe4\xc4" + noise
    chunks = [sound[start : start + _CHUNK] for start in range(0, len(sound), _CHUNK)]
    fields = openai_edge.headers(world, "audio/mpeg")
    return Answer(200, fields, tuple(chunks), chunked=True)


def transcribe(call: Call, world: World) -> Answer:
    """POST /v1/audio/transcriptions: words that depend on the uploaded bytes."""
    parts = {part.name: part for part in form_parts(call)}
    if "file" not in parts:
        return openai_edge.failure(400, call, world, "'file' is a required property")
    heard = hashlib.sha256(parts["file"].content).hexdigest()[:12]
    words = f"It sounds like {heard} — naïve ✓"
    if "stream" in parts and parts["stream"].content.lower() == b"true":
        events = [_event({"type": "transcript.text.delta", "delta": p}) for p in pieces(words)]
        events.append(_event({"type": "transcript.text.done", "text": words}))
        error = _event(openai_edge.error_body(500))
        return stream(
            openai_edge.headers(world, openai_edge.SSE_TYPE), as_asked(call, events, error)
        )
    used: JsonObject = {"type": "tokens", "input_tokens": 9, "output_tokens": tokens(words)}
    body: JsonObject = {"text": words, "usage": used | {"total_tokens": 9 + tokens(words)}}
    return halves(200, openai_edge.headers(world, openai_edge.JSON_TYPE), pretty(body))


def _event(value: JsonObject) -> bytes:
    return b"data: " + compact(value) + b"\n\n"
