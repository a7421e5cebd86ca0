"""What all answers of the admin listener have in common: none of them shows a credential."""

import re
from typing import Any

import pytest

from tapeway.admin.app import make_application
from tapeway.admin.routes import TABLE
from tapeway.core.model.cassette import CassetteStat
from tapeway.stores.memory import MemoryStore
from tests.admin.admin_and_proxy import World, world
from tests.admin.example_calls import ABSENT, filled
from tests.support.canary import canary, sightings

PATHS = sorted({operation.path for operation in TABLE})


@pytest.mark.parametrize("path", PATHS)
async def test_every_other_method_is_a_405_that_says_which_there_are(
    open_world: World, path: str
) -> None:
    methods = {operation.method for operation in TABLE if operation.path == path}
    allowed = methods | ({"HEAD"} if "GET" in methods else set())

    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "QUERY"):
        if method in allowed:
            continue
        response = await open_world.call(method, filled(path))

        assert response.status == 405, method
        assert set(re.split(r", *", response.headers["Allow"])) == allowed
        assert (await response.json())["error"]["code"] == "method_not_allowed"
    assert open_world.service.connections == 0


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/api/v1",
        "/api/v1/",
        "/api/v1/status/",
        "/api/v1/canary",
        "/api/v1/cassettes/default/messages",
        "/api/v1/cassettes/a/b",
        "/api/v2/status",
        "/v1/chat/completions",
        "//evil/status",
        "/..%2f..%2fetc/passwd",
    ],
)
async def test_any_other_path_is_a_404_and_reaches_no_upstream(
    open_world: World, path: str
) -> None:
    answer = await open_world.raw(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )

    assert answer.startswith(b"HTTP/1.1 404 "), answer[:200]
    assert b"canary" not in answer
    assert open_world.service.connections == 0


async def test_every_answer_is_shielded_from_browsers(open_world: World) -> None:
    await open_world.ask()
    open_world.journal.close()

    for method, path in [(operation.method, filled(operation.path)) for operation in TABLE] + [
        ("GET", "/nowhere"),
        ("POST", "/"),
        ("PUT", "/api/v1/mode"),
    ]:
        headers = (await open_world.call(method, path)).headers
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "tapeway"
        assert not [name for name in headers if name.lower().startswith("access-control")]


async def test_head_is_a_get_without_its_body(open_world: World) -> None:
    await open_world.ask()
    for operation in TABLE:
        if operation.method != "GET":
            continue
        answer = await open_world.raw(
            f"HEAD {filled(operation.path)} HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: close\r\n\r\n".encode()
        )

        status = b"404" if operation.name in ABSENT else b"200"
        assert answer.startswith(b"HTTP/1.1 %b " % status), operation.name
        assert answer.endswith(b"\r\n\r\n"), operation.name
        assert answer.count(b"\r\n\r\n") == 1, operation.name


async def test_an_error_has_the_shape_that_sdks_show(open_world: World) -> None:
    response = await open_world.call("POST", "/api/v1/eject")

    body = await response.json()
    assert response.status == 409
    assert response.content_type == "application/json"
    assert body["request_id"] == response.headers["x-request-id"] == response.headers["request-id"]
    assert body == {
        "type": "error",
        "error": {
            "type": "not_inserted",
            "code": "not_inserted",
            "status": "NOT_INSERTED",
            "message": body["message"],
            "param": None,
        },
        "message": "cassette 'default' is not loaded: its first request loads it, or insert",
        "request_id": body["request_id"],
        "tapeway": {},
    }


class BrokenStore(MemoryStore):
    """Fails as no store should."""

    async def stat(self, name: str) -> CassetteStat | None:
        raise ZeroDivisionError("canary-in-the-exception")


async def test_a_fault_of_ours_is_a_500_that_keeps_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(store=BrokenStore()) as broken:
        response = await broken.call("GET", "/api/v1/cassettes/default")

    assert response.status == 500
    assert (await response.json())["error"]["code"] == "internal"
    assert "canary" not in await response.text()
    assert "ZeroDivisionError" in caplog.text
    assert "canary" not in caplog.text


async def test_the_api_is_an_ordinary_application(open_world: World, aiohttp_free: Any) -> None:
    application = make_application(
        open_world.broker,
        open_world.journal,
        token=None,
        listener=("127.0.0.1", 8081),
        version="1",
    )

    assert await aiohttp_free(application, "/healthz") == 200


async def test_no_credential_of_a_request_comes_out_here(open_world: World) -> None:
    names = ("authorization", "x-api-key", "cookie", "set-cookie", "key")
    canaries = {name: canary(name) for name in names}
    open_world.service.headers = (
        (b"Content-Type", b"application/json"),
        (b"Set-Cookie", f"sid={canaries['set-cookie']}; Path=/".encode()),
    )
    open_world.service.body = f'{{"echo":"{canaries["x-api-key"]}"}}'.encode()
    headers = {
        "Authorization": f"Bearer {canaries['authorization']}",
        "X-Api-Key": canaries["x-api-key"],
        "Cookie": f"sid={canaries['cookie']}",
    }
    url = open_world.proxy + "/v1/models"
    async with open_world.http.get(open_world.admin + "/api/v1/events") as stream:
        for mode in ("auto", "replay"):
            await open_world.done("PUT", "/api/v1/mode", {"mode": mode})
            for path in ("", "/more"):
                params = {"api_key": canaries["key"], "mode": mode + path}
                await (await open_world.http.get(url + path, params=params, headers=headers)).read()
        open_world.journal.close()
        places = {"/api/v1/events": await stream.read()}

    for path in (
        *("/", "/metrics", "/openapi.json", "/api/v1/status", "/api/v1/journal"),
        *("/api/v1/report", "/api/v1/cassettes", "/api/v1/cassettes/default"),
        *(f"/api/v1/cassettes/default/interactions{index}" for index in ("", "/0", "/1")),
        *(f"/api/v1/cassettes/default/interactions/{index}/view" for index in (0, 1)),
        *(f"/api/v1/cassettes/default/{shown}" for shown in ("titles", "turns", "comparison")),
        *(f"/api/v1/journal/{entry.id}" for entry in open_world.journal),
    ):
        places[path] = await open_world.octets(path)

    assert places["/api/v1/events"].count(b"event: request") == 4
    assert sightings(canaries, places) == []
