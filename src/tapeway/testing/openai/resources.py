"""OpenAI's other endpoints: embeddings, files and models.

OpenAI's speech, as bytes that come in chunks, and its transcriptions of uploads.
"""

import base64
import hashlib
import struct

from tapeway.testing.answer import StandInAnswer, as_asked, compact, halves, pretty, stream, whole
from tapeway.testing.openai import envelope
from tapeway.testing.reply import World, pieces, tokens, vector
from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    form_parts,
    int_at,
    list_at,
    text_at,
)

_DIMENSIONS = 1536
_MODELS = ("gpt-4o", "gpt-4o-mini", "text-embedding-3-small", "tts-1")

_CHUNK = 999
"""No multiple of a frame, so that frames are cut as networks cut them."""


def embed(call: StandInRequest, world: World) -> StandInAnswer:
    """POST /v1/embeddings, as numbers or as base64 of little-endian 32-bit floats."""
    texts = _inputs(call.json)
    dimensions = int_at(call.json, "dimensions", default=_DIMENSIONS)
    as_base64 = text_at(call.json, "encoding_format") == "base64"
    vectors = [vector(text, dimensions) for text in texts]
    used = sum(tokens(text) for text in texts)
    body: JsonObject = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": _packed(v) if as_base64 else v}
            for i, v in enumerate(vectors)
        ],
        "model": call.model,
        "usage": {"prompt_tokens": used, "total_tokens": used},
    }
    return _answer(world, body)


def _inputs(body: JsonObject) -> list[str]:
    given = at(body, "input")
    if isinstance(given, str):
        return [given]
    items = list_at(body, "input")
    if items and isinstance(items[0], int):
        return [repr(items)]
    return [item if isinstance(item, str) else repr(item) for item in items]


def _packed(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def upload_file(call: StandInRequest, world: World) -> StandInAnswer:
    """POST /v1/files."""
    parts = {part.name: part for part in form_parts(call)}
    if "file" not in parts:
        return envelope.failure(400, call, world, "'file' is a required property")
    purpose = parts["purpose"].content.decode() if "purpose" in parts else ""
    file: JsonObject = {
        "object": "file",
        "id": world.mint("file-", 22),
        "purpose": purpose,
        "filename": parts["file"].filename,
        "bytes": len(parts["file"].content),
        "created_at": world.seconds(),
        "expires_at": None,
        "status": "processed",
        "status_details": None,
    }
    world.kept[text_at(file, "id")] = file
    world.files[text_at(file, "id")] = parts["file"].content
    return _answer(world, file)


def list_files(call: StandInRequest, world: World) -> StandInAnswer:
    """GET /v1/files."""
    files = [world.kept[file_id] for file_id in world.files]
    return _answer(world, {"object": "list", "data": files, "has_more": False})


def retrieve_file(call: StandInRequest, world: World) -> StandInAnswer:
    """GET /v1/files/{id}."""
    if call.params["id"] not in world.files:
        return _no_file(call, world)
    return _answer(world, world.kept[call.params["id"]])


def file_content(call: StandInRequest, world: World) -> StandInAnswer:
    """GET /v1/files/{id}/content."""
    if call.params["id"] not in world.files:
        return _no_file(call, world)
    fields = envelope.headers(world, "application/octet-stream")
    return whole(200, fields, world.files[call.params["id"]])


def delete_file(call: StandInRequest, world: World) -> StandInAnswer:
    """DELETE /v1/files/{id}."""
    if world.files.pop(call.params["id"], None) is None:
        return _no_file(call, world)
    return _answer(world, {"object": "file", "id": call.params["id"], "deleted": True})


def _no_file(call: StandInRequest, world: World) -> StandInAnswer:
    return envelope.failure(404, call, world, f"No such File object: {call.params['id']}")


def list_models(call: StandInRequest, world: World) -> StandInAnswer:
    """GET /v1/models."""
    models = [
        {"id": name, "object": "model", "created": 1715367049, "owned_by": "system"}
        for name in _MODELS
    ]
    return _answer(world, {"object": "list", "data": models})


def _answer(world: World, body: JsonObject) -> StandInAnswer:
    return halves(200, envelope.headers(world, envelope.JSON_TYPE), pretty(body))


def speak(call: StandInRequest, world: World) -> StandInAnswer:
    """POST /v1/audio/speech: bytes with an MP3 frame's head that are no text in any encoding."""
    noise = hashlib.shake_256(text_at(call.json, "input").encode()).digest(4000)
    sound = b"\xff\xf3\xe4\xc4" + noise
    chunks = [sound[start : start + _CHUNK] for start in range(0, len(sound), _CHUNK)]
    fields = envelope.headers(world, "audio/mpeg")
    return StandInAnswer(200, fields, tuple(chunks), chunked=True)


def transcribe(call: StandInRequest, world: World) -> StandInAnswer:
    """POST /v1/audio/transcriptions: words that depend on the uploaded bytes."""
    parts = {part.name: part for part in form_parts(call)}
    if "file" not in parts:
        return envelope.failure(400, call, world, "'file' is a required property")
    heard = hashlib.sha256(parts["file"].content).hexdigest()[:12]
    words = f"It sounds like {heard} — naïve ✓"
    if "stream" in parts and parts["stream"].content.lower() == b"true":
        events = [_event({"type": "transcript.text.delta", "delta": p}) for p in pieces(words)]
        events.append(_event({"type": "transcript.text.done", "text": words}))
        error = _event(envelope.error_body(500))
        return stream(envelope.headers(world, envelope.SSE_TYPE), as_asked(call, events, error))
    used: JsonObject = {"type": "tokens", "input_tokens": 9, "output_tokens": tokens(words)}
    body: JsonObject = {"text": words, "usage": used | {"total_tokens": 9 + tokens(words)}}
    return halves(200, envelope.headers(world, envelope.JSON_TYPE), pretty(body))


def _event(value: JsonObject) -> bytes:
    return b"data: " + compact(value) + b"\n\n"
