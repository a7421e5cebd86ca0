"""The OpenAPI document: well-formed, and true of the answers it describes."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from tapeway.admin import app
from tapeway.admin.openapi import document
from tapeway.admin.operation import Operation
from tapeway.admin.routes import TABLE
from tapeway.core.json_text import Json
from tests.admin.admin_and_proxy import World, world
from tests.admin.example_calls import ABSENT, QUERIES, example, filled

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
SCHEMA_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


@pytest.fixture
def described() -> Any:
    return document(TABLE, "1.2.3", locked=True)


async def test_it_is_served_as_it_is_made(open_world: World) -> None:
    api = [operation for operation in TABLE if not operation.for_page]

    assert await open_world.got("/openapi.json") == document(api, "1.2.3", locked=False)


async def test_what_only_the_page_calls_is_answered_and_not_in_it(open_world: World) -> None:
    await open_world.ask("/v1/a")
    paths = (await open_world.got("/openapi.json"))["paths"]
    left_out = {
        (operation.method, operation.path)
        for operation in TABLE
        if operation.method.lower() not in paths.get(operation.path, {})
    }

    named = "/api/v1/cassettes/{name}"
    assert left_out == {
        ("GET", "/api/v1/eject"),
        ("GET", "/api/v1/journal/{id}/call"),
        ("GET", "/api/v1/journal/{id}/record"),
        ("POST", "/api/v1/journal/{id}/record"),
        ("GET", "/api/v1/recordings"),
        ("GET", "/api/v1/recordings/{number}/events"),
        ("GET", f"{named}/comparison"),
        ("GET", f"{named}/comparison/events"),
        ("GET", f"{named}/rules"),
        ("DELETE", f"{named}/rules"),
        ("GET", f"{named}/titles"),
        ("GET", f"{named}/turns"),
        ("GET", f"{named}/interactions/{{index}}/view"),
        ("GET", f"{named}/interactions/{{index}}/live"),
        ("POST", f"{named}/interactions/{{index}}/live"),
    }
    assert (await open_world.got("/api/v1/cassettes/default/titles"))["total"] == 1


async def test_the_fields_of_one_entry_are_described(open_world: World) -> None:
    schemas = (await open_world.got("/openapi.json"))["components"]["schemas"]

    assert schemas["WholeEntry"]["properties"]["request"]["description"] == "Of a miss."
    assert schemas["ComparedRequest"]["properties"]["size"]["description"] == "Bytes of its body."
    assert schemas["Preview"]["description"] == "The recordings that would answer a request."


async def test_it_is_made_when_it_is_first_asked_for_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def counted(table: Sequence[Operation], version: str, *, locked: bool) -> dict[str, Json]:
        made.append(version)
        return document(table, version, locked=locked)

    monkeypatch.setattr(app, "document", counted)

    async with world() as found:
        assert made == []
        assert await found.got("/openapi.json") == await found.got("/openapi.json")

    assert made == ["1.2.3"]


def test_it_names_the_operations_of_the_table_and_no_others(described: Any) -> None:
    operations = {
        (method.upper(), path, operation["operationId"])
        for path, item in described["paths"].items()
        for method, operation in item.items()
    }

    assert operations == {(operation.method, operation.path, operation.name) for operation in TABLE}
    assert len({name for _, _, name in operations}) == len(TABLE)


def test_its_frame_is_that_of_openapi_3_1(described: Any) -> None:
    assert set(described) == {"openapi", "info", "servers", "paths", "components"}
    assert described["openapi"] == "3.1.0"
    assert described["info"]["title"]
    assert described["info"]["version"] == "1.2.3"
    for path, item in described["paths"].items():
        assert path.startswith("/")
        for operation in item.values():
            _check_operation(path, operation)


def _check_operation(path: str, operation: Any) -> None:
    assert operation["summary"].endswith(".")
    in_path = {
        parameter["name"]
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "path"
    }
    assert in_path == set(re.findall(r"\{(\w+)\}", path))
    for parameter in operation.get("parameters", []):
        assert parameter["in"] in ("path", "query")
        assert parameter["in"] == "query" or parameter["required"] is True
        assert parameter["schema"]["type"] in SCHEMA_TYPES - {"null"}
    assert {"200", "400", "403", "default"} <= set(operation["responses"])
    for status, response in operation["responses"].items():
        assert re.fullmatch(r"[1-5]\d\d|default", status)
        assert response["description"]
        assert all("schema" in content for content in response["content"].values())


def test_every_reference_leads_somewhere_and_every_schema_is_used(described: Any) -> None:
    names = set(described["components"]["schemas"])
    referred = {
        reference.removeprefix("#/components/schemas/") for reference in _references(described)
    }

    assert referred == names


def test_schemas_keep_to_json_schema(described: Any) -> None:
    schemas = described["components"]["schemas"].items()

    assert len(schemas) > 25
    for name, schema in schemas:
        assert schema["type"] == "object", name
        assert set(schema.get("required", [])) <= set(schema["properties"]), name


def test_only_what_needs_the_token_says_so(described: Any) -> None:
    secured = {
        path
        for path, item in described["paths"].items()
        for operation in item.values()
        if operation.get("security") == [{"token": []}]
    }

    assert secured == {operation.path for operation in TABLE} - {"/healthz", "/readyz"}
    assert "security" not in str(document(TABLE, "1", locked=False)["paths"])


def test_only_calls_with_fields_have_a_body(described: Any) -> None:
    bodies = {
        path: item[method]["requestBody"]["required"]
        for path, item in described["paths"].items()
        for method in item
        if "requestBody" in item[method]
    }

    assert bodies == {
        "/api/v1/mode": True,
        "/api/v1/insert": True,
        "/api/v1/eject": False,
        "/api/v1/rewind": False,
        "/api/v1/faults": True,
        "/api/v1/check": True,
        "/api/v1/slots/{slot}": True,
        "/api/v1/report": True,
        "/api/v1/report/notes": True,
        "/api/v1/journal/{id}/accept": False,
        "/api/v1/cassettes/{name}": True,
        "/api/v1/cassettes/{name}/copy": True,
        "/api/v1/cassettes/{name}/bodies/{sha256}": True,
        "/api/v1/cassettes/{name}/interactions": True,
        "/api/v1/cassettes/{name}/interactions/{index}": True,
    }


async def test_answers_are_as_described() -> None:
    async with world() as found:
        described = cast("Any", document(TABLE, "1.2.3", locked=False))
        await found.ask("/v1/a")
        await found.done("PUT", "/api/v1/mode", {"mode": "replay"})
        await found.ask("/v1/b")
        for operation in TABLE:
            if operation.name in (
                *ABSENT,
                *QUERIES,
                "events",
                "insert",
                "put_mode",
                "delete_cassette",
            ):
                continue
            path, carried = filled(operation.path), example(operation)
            headers = {"Content-Type": carried.type} if carried.body else {}
            data = carried.body or None
            response = await found.call(operation.method, path, data=data, headers=headers)
            content = described["paths"][operation.path][operation.method.lower()]["responses"][
                "200"
            ]
            assert response.status == 200, path
            assert next(iter(content["content"])) == response.content_type, path
            if response.content_type == "application/json":
                schema = content["content"]["application/json"]["schema"]
                _check_value(await response.json(), schema, described, path)
        error = await (await found.call("GET", "/nowhere")).json()
        _check_value(error, {"$ref": "#/components/schemas/Error"}, described, "an error")


_LEFT_OUT = {"details", "left_over", "base", "repeated"}
"""Fields that an answer has where there is something to say."""


def _check_value(value: Any, schema: Any, described: Any, where: str) -> None:
    """As much of JSON Schema as the document uses."""
    if "$ref" in schema:
        schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        kinds = [
            schema_part
            for schema_part in schema["anyOf"]
            if (schema_part.get("type") == "null") == (value is None)
        ]
        assert kinds, where
        schema = kinds[0]
    kind = schema.get("type")
    if kind in TYPES:
        assert isinstance(value, TYPES[kind]), where
    assert value in schema.get("enum", [value]), where
    assert value == schema.get("const", value), where
    if kind == "array":
        for at, item in enumerate(value):
            _check_value(item, schema["items"], described, f"{where}[{at}]")
    if kind == "object" and "properties" in schema:
        # Laggards, and what is left over, are named where there are any.
        assert set(schema["properties"]) - set(value) <= _LEFT_OUT, where
        assert set(value) <= set(schema["properties"]), where
        for name, said in value.items():
            _check_value(said, schema["properties"][name], described, f"{where}.{name}")


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _references(item)


async def test_each_format_is_answered_under_a_type_that_it_lists(
    open_world: World, described: Any
) -> None:
    await open_world.ask("/v1/a")
    seen: dict[str, set[str]] = {}
    for operation in TABLE:
        names = operation.query.model_json_schema().get("properties", {})
        if operation.method != "GET" or "format" not in names:
            continue
        for form in names["format"]["enum"]:
            shown = await open_world.call("GET", f"{filled(operation.path)}?format={form}")
            assert shown.status == 200
            seen.setdefault(operation.path, set()).add(shown.content_type)

    assert len(seen) == 2
    for path, types in seen.items():
        assert set(described["paths"][path]["get"]["responses"]["200"]["content"]) == types


def test_nothing_is_no_name(described: Any) -> None:
    patterns = set(re.findall(r"'pattern': '([^']*)'", str(described)))

    assert len(patterns) == 5
    assert [pattern for pattern in patterns if re.search(pattern, "")] == []
