"""OpenAI's embeddings, files, models, speech and transcriptions."""

import base64
import hashlib
import struct

from tapeway.testing.answer import StandInAnswer, compact, with_length
from tapeway.testing.openai import envelope
from tapeway.testing.reply import StandInState, pieces, vector
from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    int_at,
    list_at,
    text_at,
    tokens,
)

_DIMENSIONS = 1536
_MODELS = ("gpt-4o", "gpt-4o-mini", "text-embedding-3-small", "tts-1")

_CHUNK = 999
"""Not a multiple of a frame: chunks cut frames, as networks do."""


def embed(call: StandInRequest, state: StandInState) -> StandInAnswer:
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
    return _answer(state, body)


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


def upload_file(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/files."""
    parts = {part.name: part for part in call.parts}
    if "file" not in parts:
        return envelope.failure(400, call, state, "'file' is a required property")
    purpose = parts["purpose"].content.decode() if "purpose" in parts else ""
    file = store_file(state, parts["file"].filename, purpose, parts["file"].content)
    return _answer(state, file)


def store_file(state: StandInState, filename: str, purpose: str, content: bytes) -> JsonObject:
    """Keep a file, and return the file object."""
    file: JsonObject = {
        "object": "file",
        "id": state.new_id("file-", 22),
        "purpose": purpose,
        "filename": filename,
        "bytes": len(content),
        "created_at": state.seconds(),
        "expires_at": None,
        "status": "processed",
        "status_details": None,
    }
    state.documents[text_at(file, "id")] = file
    state.files[text_at(file, "id")] = content
    return file


def list_files(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/files."""
    files = [state.documents[file_id] for file_id in state.files]
    return _answer(state, {"object": "list", "data": files, "has_more": False})


def retrieve_file(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/files/{id}."""
    if call.params["id"] not in state.files:
        return _no_file(call, state)
    return _answer(state, state.documents[call.params["id"]])


def file_content(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/files/{id}/content."""
    if call.params["id"] not in state.files:
        return _no_file(call, state)
    fields = envelope.headers(state, "application/octet-stream")
    return with_length(200, fields, state.files[call.params["id"]])


def delete_file(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """DELETE /v1/files/{id}."""
    if state.files.pop(call.params["id"], None) is None:
        return _no_file(call, state)
    return _answer(state, {"object": "file", "id": call.params["id"], "deleted": True})


def _no_file(call: StandInRequest, state: StandInState) -> StandInAnswer:
    return envelope.failure(404, call, state, f"No such File object: {call.params['id']}")


def list_models(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/models."""
    models = [
        {"id": name, "object": "model", "created": 1715367049, "owned_by": "system"}
        for name in _MODELS
    ]
    return _answer(state, {"object": "list", "data": models})


def _answer(state: StandInState, body: JsonObject) -> StandInAnswer:
    return envelope.answer(body, state)


def speak(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/audio/speech: bytes with an MP3 frame's head that are no text in any encoding."""
    noise = hashlib.shake_256(text_at(call.json, "input").encode()).digest(4000)
    sound = b"\xff\xf3\xe4\xc4" + noise
    chunks = [sound[start : start + _CHUNK] for start in range(0, len(sound), _CHUNK)]
    fields = envelope.headers(state, "audio/mpeg")
    return StandInAnswer(200, fields, tuple(chunks), chunked=True)


def client_secret(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/realtime/client_secrets: a key for a browser."""
    given = at(call.json, "session")
    session: JsonObject = {"type": "realtime", "object": "realtime.session"}
    body: JsonObject = {
        "value": state.new_id("ek_", 32),
        "expires_at": state.seconds() + 600,
        "session": session | (given if isinstance(given, dict) else {}),
    }
    return _answer(state, body)


def transcribe(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/audio/transcriptions: words that depend on the uploaded bytes."""
    parts = {part.name: part for part in call.parts}
    if "file" not in parts:
        return envelope.failure(400, call, state, "'file' is a required property")
    heard = hashlib.sha256(parts["file"].content).hexdigest()[:12]
    words = f"It sounds like {heard} — naïve ✓"
    if "stream" in parts and parts["stream"].content.lower() == b"true":
        events = [_event({"type": "transcript.text.delta", "delta": p}) for p in pieces(words)]
        events.append(_event({"type": "transcript.text.done", "text": words}))
        return envelope.streamed(call, state, events, envelope.error_body(500))
    used: JsonObject = {"type": "tokens", "input_tokens": 9, "output_tokens": tokens(words)}
    body: JsonObject = {"text": words, "usage": used | {"total_tokens": 9 + tokens(words)}}
    return envelope.answer(body, state)


def _event(value: JsonObject) -> bytes:
    return b"data: " + compact(value) + b"\n\n"
