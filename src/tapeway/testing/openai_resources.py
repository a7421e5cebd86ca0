"""OpenAI's other endpoints: embeddings, files and models."""

import base64
import struct

from tapeway.testing import openai_edge
from tapeway.testing.answer import Answer, halves, pretty, whole
from tapeway.testing.call import Call
from tapeway.testing.json_tree import JsonObject, at, int_at, list_at, text_at
from tapeway.testing.multipart import form_parts
from tapeway.testing.reply import tokens, vector
from tapeway.testing.world import World

_DIMENSIONS = 1536
_MODELS = ("gpt-4o", "gpt-4o-mini", "text-embedding-3-small", "tts-1")


def embed(call: Call, world: World) -> Answer:
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


def upload_file(call: Call, world: World) -> Answer:
    """POST /v1/files."""
    parts = {part.name: part for part in form_parts(call)}
    if "file" not in parts:
        return openai_edge.failure(400, call, world, "'file' is a required property")
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


def list_files(call: Call, world: World) -> Answer:
    """GET /v1/files."""
    files = [world.kept[file_id] for file_id in world.files]
    return _answer(world, {"object": "list", "data": files, "has_more": False})


def retrieve_file(call: Call, world: World) -> Answer:
    """GET /v1/files/{id}."""
    if call.params["id"] not in world.files:
        return _no_file(call, world)
    return _answer(world, world.kept[call.params["id"]])


def file_content(call: Call, world: World) -> Answer:
    """GET /v1/files/{id}/content."""
    if call.params["id"] not in world.files:
        return _no_file(call, world)
    fields = openai_edge.headers(world, "application/octet-stream")
    return whole(200, fields, world.files[call.params["id"]])


def delete_file(call: Call, world: World) -> Answer:
    """DELETE /v1/files/{id}."""
    if world.files.pop(call.params["id"], None) is None:
        return _no_file(call, world)
    return _answer(world, {"object": "file", "id": call.params["id"], "deleted": True})


def _no_file(call: Call, world: World) -> Answer:
    return openai_edge.failure(404, call, world, f"No such File object: {call.params['id']}")


def list_models(call: Call, world: World) -> Answer:
    """GET /v1/models."""
    models = [
        {"id": name, "object": "model", "created": 1715367049, "owned_by": "system"}
        for name in _MODELS
    ]
    return _answer(world, {"object": "list", "data": models})


def _answer(world: World, body: JsonObject) -> Answer:
    return halves(200, openai_edge.headers(world, openai_edge.JSON_TYPE), pretty(body))
