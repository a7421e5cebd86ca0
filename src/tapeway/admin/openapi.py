"""The OpenAPI 3.1 document, made from the route table and the models."""

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tapeway.admin.models.control import InForce
from tapeway.admin.models.schema import MAX_INDEX, NAME_PATTERN, SLOT_PATTERN, Error, Nothing
from tapeway.admin.operation import Media, Operation, RawBody
from tapeway.core.http.headers import is_json
from tapeway.core.json_text import Json

_REF = "#/components/schemas/"
_SUMMARY = "Control and inspect tapeway, a record-and-replay proxy for HTTP and LLM APIs."

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
    for each in table:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, locked=locked)
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
    found: list[tuple[type[BaseModel], Literal["validation", "serialization"]]]
    found = [(Error, "serialization")]
    for each in table:
        if not isinstance(each.response, Media):
            found.append((each.response, "serialization"))
        if each.body is not Nothing:
            found.append((each.body, "validation"))
        if each.raw_body is not None and each.raw_body.json is not None:
            found.append((each.raw_body.json, "validation"))
    return found


def _operation(each: Operation, *, locked: bool) -> dict[str, Json]:
    operation: dict[str, Json] = {
        "operationId": each.name,
        "summary": each.summary,
        "tags": [each.path.removeprefix("/api/v1").split("/")[1] or "index"],
        "responses": _responses(each, locked=locked),
    }
    if parameters := [*_path_parameters(each.path), *_query_parameters(each.query)]:
        operation["parameters"] = parameters
    if each.body is not Nothing:
        required = any(field.is_required() for field in each.body.model_fields.values())
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": _reference(each.body)}},
        }
    if each.raw_body is not None:
        operation["requestBody"] = {
            "required": True,
            "description": each.raw_body.description,
            "content": {
                media: {"schema": _raw_schema(each.raw_body, media)}
                for media in each.raw_body.types
            },
        }
    if locked and not each.public:
        operation["security"] = [{"token": []}]
    return operation


def _raw_schema(body: RawBody, media_type: str) -> Json:
    if not is_json(media_type.encode()):
        return {"type": "string"}
    return {"type": "object"} if body.json is None else _reference(body.json)


def _responses(each: Operation, *, locked: bool) -> dict[str, Json]:
    statuses = {400, 403, *each.errors}
    if locked and not each.public:
        statuses |= {401, 429}
    if each.takes_body:
        statuses |= {413, 415}
    found: dict[str, Json] = {"200": _success(each)}
    if not isinstance(each.response, Media) and issubclass(each.response, InForce):
        found["202"] = _success(each)
    for status in sorted(statuses):
        found[str(status)] = _error(_ERROR_DESCRIPTIONS[status])
    return found | {"default": _error("Any other error")}


def _success(each: Operation) -> Json:
    others = dict.fromkeys(each.other_types, _schema({"type": "string"}))
    if isinstance(each.response, Media):
        kind = "object" if each.response.type == "application/json" else "string"
        return {
            "description": each.response.description,
            "content": {each.response.type: _schema({"type": kind}), **others},
        }
    return {
        "description": each.summary,
        "content": {"application/json": _schema(_reference(each.response)), **others},
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
    found: dict[str, Json] = {"name": name, "in": "query", "schema": schema}
    if "description" in field:
        found["description"] = field["description"]
    return found


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": _REF + model.__name__}
