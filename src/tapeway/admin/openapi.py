"""The OpenAPI 3.1 document, made from the route table and the models."""

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tapeway.admin.models.schema import MAX_INDEX, NAME_PATTERN, SLOT_PATTERN, Error, Nothing
from tapeway.admin.operation import Media, Operation, RawBody
from tapeway.core.json_text import Json
from tapeway.core.model.request_fields import is_json

_REF = "#/components/schemas/"
_SUMMARY = "Control and inspect tapeway, a record-and-replay proxy for HTTP and LLM APIs."

_MEDIA_SCHEMAS: dict[str, dict[str, Json]] = {
    "application/json": {"type": "object"},
    # Readers of the document check the text of a stream, or each event.
    "text/event-stream": {},
}

_PATH_PARAMETERS: dict[str, Json] = {
    "name": {"type": "string", "pattern": NAME_PATTERN},
    "index": {"type": "integer", "minimum": 0, "maximum": MAX_INDEX},
    "id": {"type": "string", "pattern": "^[A-Za-z0-9-]{1,100}$"},
    "number": {"type": "string", "pattern": "^[0-9]{1,15}$"},
    "slot": {"type": "string", "pattern": SLOT_PATTERN},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_PATH_PARAMETER_DESCRIPTIONS = {
    "name": "The cassette's name, URL-encoded: `a/b` is `a%2Fb`.",
    "index": "The interaction's index.",
    "id": "The journal entry's id.",
    "number": "The recording's id in the list.",
    "slot": "The slot's name.",
    "sha256": "The SHA-256 of the body, in hex.",
}
_ERROR_DESCRIPTIONS = {
    400: "The request is invalid",
    401: "The token is missing or wrong",
    403: "The Host or the Origin is not that of this listener",
    404: "It does not exist",
    409: "The cassette is not loaded, or somebody edited it meanwhile",
    412: "The If-Match or If-None-Match does not hold",
    413: "The body or the cassette is too large",
    415: "This operation does not take this Content-Type",
    422: "The content cannot be stored or exported: the message says why",
    429: "Too many wrong tokens",
    500: "The cassette cannot be read",
    502: "The service did not answer, or not wholly",
    503: "tapeway is stopping, or the store is locked, poisoned or unreachable",
    504: "The service did not answer in time",
    507: "The store is full",
}


def document(table: Sequence[Operation], version: str, *, locked: bool) -> dict[str, Json]:
    """The document; `locked` says whether calls need a token."""
    models = sorted({*_models(table)}, key=lambda pair: pair[0].__name__)
    _, definitions = models_json_schema(models, ref_template=_REF + "{model}")
    paths: dict[str, dict[str, Json]] = {}
    for operation in table:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, locked=locked
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "tapeway admin API", "version": version, "summary": _SUMMARY},
        "servers": [{"url": "/"}],
        "paths": dict(paths),
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _models(
    table: Sequence[Operation],
) -> list[tuple[type[BaseModel], Literal["validation", "serialization"]]]:
    models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]]
    models = [(Error, "serialization")]
    for operation in table:
        if not isinstance(operation.response, Media):
            models.append((operation.response, "serialization"))
        if operation.body is not Nothing:
            models.append((operation.body, "validation"))
        if operation.raw_body is not None and operation.raw_body.json is not None:
            models.append((operation.raw_body.json, "validation"))
    return models


def _operation(row: Operation, *, locked: bool) -> dict[str, Json]:
    operation: dict[str, Json] = {
        "operationId": row.name,
        "summary": row.summary,
        "tags": [row.path.removeprefix("/api/v1").split("/")[1] or "index"],
        "responses": _responses(row, locked=locked),
    }
    if parameters := [*_path_parameters(row.path), *_query_parameters(row.query)]:
        operation["parameters"] = parameters
    if row.body is not Nothing:
        required = any(field.is_required() for field in row.body.model_fields.values())
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": _reference(row.body)}},
        }
    if row.raw_body is not None:
        operation["requestBody"] = {
            "required": True,
            "description": row.raw_body.description,
            "content": {
                media: {"schema": _raw_schema(row.raw_body, media)} for media in row.raw_body.types
            },
        }
    if locked and not row.public:
        operation["security"] = [{"token": []}]
    return operation


def _raw_schema(body: RawBody, media_type: str) -> Json:
    if not is_json(media_type.encode()):
        return {"type": "string"}
    return {"type": "object"} if body.json is None else _reference(body.json)


def _responses(operation: Operation, *, locked: bool) -> dict[str, Json]:
    statuses = {400, 403, *operation.errors}
    if locked and not operation.public:
        statuses |= {401, 429}
    if operation.takes_body:
        statuses |= {413, 415}
    responses: dict[str, Json] = {"200": _success(operation)}
    for status in sorted(statuses):
        responses[str(status)] = _error(_ERROR_DESCRIPTIONS[status])
    return responses | {"default": _error("Any other error")}


def _success(operation: Operation) -> Json:
    others = dict.fromkeys(operation.other_types, _schema({"type": "string"}))
    if isinstance(operation.response, Media):
        schema = _MEDIA_SCHEMAS.get(operation.response.type, {"type": "string"})
        return {
            "description": operation.response.description,
            "content": {operation.response.type: _schema(schema), **others},
        }
    return {
        "description": operation.summary,
        "content": {"application/json": _schema(_reference(operation.response)), **others},
    }


def _schema(schema: Json) -> Json:
    return {"schema": schema}


def _error(description: str) -> Json:
    return {
        "description": description,
        "content": {"application/json": {"schema": _reference(Error)}},
    }


def _path_parameters(path: str) -> list[Json]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETER_DESCRIPTIONS[name],
            "schema": _PATH_PARAMETERS[name],
        }
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query_parameters(model: type[BaseModel]) -> list[Json]:
    schema = model.model_json_schema()
    return [_query_parameter(name, field) for name, field in schema.get("properties", {}).items()]


def _query_parameter(name: str, field: dict[str, Json]) -> Json:
    schema = {key: value for key, value in field.items() if key not in ("title", "description")}
    options = schema.pop("anyOf", None)
    if isinstance(options, list):
        # A parameter is left out, never null.
        not_null = next(option for option in options if option != {"type": "null"})
        schema = dict(not_null) if isinstance(not_null, dict) else {}
    parameter: dict[str, Json] = {"name": name, "in": "query", "schema": schema}
    if "description" in field:
        parameter["description"] = field["description"]
    return parameter


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": _REF + model.__name__}
