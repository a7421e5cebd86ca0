"""The OpenAPI 3.1 document, made from the table and the models so that it cannot say otherwise."""

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tapeway.admin.models.control import InForce
from tapeway.admin.models.schema import MAX_INDEX, NAME_PATTERN, Error, Nothing
from tapeway.admin.operation import Media, Operation
from tapeway.core.json_text import Json

_REF = "#/components/schemas/"
_SUMMARY = "Steer and read tapeway: a record-and-replay proxy for HTTP and LLM APIs."

_PARAMETERS: dict[str, Json] = {
    "name": {"type": "string", "pattern": NAME_PATTERN},
    "index": {"type": "integer", "minimum": 0, "maximum": MAX_INDEX},
    "id": {"type": "string"},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_PARAMETER_NOTES = {
    "name": "The cassette's name, URL-encoded: `a/b` is `a%2Fb`.",
    "index": "The interaction's index.",
    "id": "The journal entry's id.",
    "sha256": "The SHA-256 of the body, in hex.",
}
_SAID = {
    400: "What was sent cannot be used",
    401: "The token is missing or wrong",
    403: "The Host or the Origin is not this listener's",
    404: "There is no such thing",
    409: "It is not in, or somebody changed it meanwhile",
    412: "It is not what If-Match or If-None-Match says",
    413: "The body is too large",
    415: "The body is not declared as what it has to be",
    422: "What was sent cannot be kept: the message says why",
    429: "Too many wrong tokens",
    500: "The cassette cannot be read",
    503: "Stopping, or the store is locked or poisoned",
    507: "There is no room to write",
}


def document(table: Sequence[Operation], version: str, *, locked: bool) -> dict[str, Json]:
    """The document; `locked` says whether a token is needed."""
    models = sorted({*_models(table)}, key=lambda pair: pair[0].__name__)
    _, definitions = models_json_schema(models, ref_template=_REF + "{model}")
    paths: dict[str, dict[str, Json]] = {}
    for each in table:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, locked=locked)
    found: dict[str, Json] = {
        "openapi": "3.1.0",
        "info": {"title": "tapeway admin API", "version": version, "summary": _SUMMARY},
        "servers": [{"url": "/"}],
        "paths": dict(paths),
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return found


def _models(
    table: Sequence[Operation],
) -> list[tuple[type[BaseModel], Literal["validation", "serialization"]]]:
    found: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = []
    found.append((Error, "serialization"))
    for each in table:
        if not isinstance(each.answer, Media):
            found.append((each.answer, "serialization"))
        if each.body is not Nothing:
            found.append((each.body, "validation"))
    return found


def _operation(each: Operation, *, locked: bool) -> dict[str, Json]:
    operation: dict[str, Json] = {
        "operationId": each.name,
        "summary": each.summary,
        "tags": [each.path.removeprefix("/api/v1").split("/")[1] or "index"],
        "responses": _responses(each, locked=locked),
    }
    if parameters := [*_in_path(each.path), *_in_query(each.query)]:
        operation["parameters"] = parameters
    if each.body is not Nothing:
        required = any(field.is_required() for field in each.body.model_fields.values())
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": _reference(each.body)}},
        }
    if each.octets is not None:
        text: Json = {"schema": {"type": "string"}}
        operation["requestBody"] = {
            "required": True,
            "description": each.octets.description,
            "content": dict.fromkeys(each.octets.types, text),
        }
    if locked and not each.public:
        operation["security"] = [{"token": []}]
    return operation


def _responses(each: Operation, *, locked: bool) -> dict[str, Json]:
    statuses = {400, 403, *each.errors}
    if locked and not each.public:
        statuses |= {401, 429}
    if each.takes_body:
        statuses |= {413, 415}
    found: dict[str, Json] = {"200": _answer(each)}
    if not isinstance(each.answer, Media) and issubclass(each.answer, InForce):
        found["202"] = _answer(each)
    for status in sorted(statuses):
        found[str(status)] = _error(_SAID[status])
    return found | {"default": _error("Any other error")}


def _answer(each: Operation) -> Json:
    if isinstance(each.answer, Media):
        schema: Json = {"type": "string"}
        if each.answer.type == "application/json":
            schema = {"type": "object"}
        return {
            "description": each.answer.description,
            "content": {each.answer.type: {"schema": schema}},
        }
    return {
        "description": each.summary,
        "content": {"application/json": {"schema": _reference(each.answer)}},
    }


def _error(said: str) -> Json:
    return {
        "description": said,
        "content": {"application/json": {"schema": _reference(Error)}},
    }


def _in_path(path: str) -> list[Json]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PARAMETER_NOTES[name],
            "schema": _PARAMETERS[name],
        }
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _in_query(model: type[BaseModel]) -> list[Json]:
    schema = model.model_json_schema()
    return [_parameter(name, field) for name, field in schema.get("properties", {}).items()]


def _parameter(name: str, field: dict[str, Json]) -> Json:
    schema = {key: value for key, value in field.items() if key not in ("title", "description")}
    options = schema.pop("anyOf", None)
    if isinstance(options, list):
        # A parameter is left out, never null.
        some = next(each for each in options if each != {"type": "null"})
        schema = dict(some) if isinstance(some, dict) else {}
    found: dict[str, Json] = {"name": name, "in": "query", "schema": schema}
    if "description" in field:
        found["description"] = field["description"]
    return found


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": _REF + model.__name__}
