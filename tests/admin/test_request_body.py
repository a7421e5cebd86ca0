"""What admin calls may carry, and what happens to those that carry something else."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeway.admin import request_body
from tapeway.admin.request_body import MAX_BODY
from tapeway.admin.routes import TABLE
from tests.admin.admin_and_proxy import World, world
from tests.admin.example_calls import filled
from tests.support.thoroughness import examples

JSON = {"Content-Type": "application/json"}
TAKING = [
    (operation.method, filled(operation.path))
    for operation in TABLE
    if operation.takes_body and operation.raw_body is None
]

BAD = {
    "no JSON": b"mode=replay",
    "half": b'{"mode":',
    "not UTF-8": b'{"mode":"\xff"}',
    "a list": b"[]",
    "a string": b'"replay"',
    "null": b"null",
    "an unknown field": b'{"canary-field":1}',
    "a key twice": b'{"cassette":"a","cassette":"b"}',
    "NaN": b'{"cassette":NaN}',
    "Infinity": b'{"cassette":-Infinity}',
    "too large a number": b'{"cassette":1e999}',
    "an integer without end": b'{"cassette":' + b"9" * 100_000 + b"}",
    "a tiny number": b'{"cassette":1e-99999999999999999999}',
    "depth": b'{"cassette":' * 50_000 + b"1" + b"}" * 50_000,
    "lists in lists": b"[" * 500_000,
    "half a pair": b'{"cassette":"\\ud800"}',
    "a name with dots": b'{"cassette":"../../etc/passwd"}',
    "a name with a NUL": b'{"cassette":"a\\u0000b"}',
    "a name without end": b'{"cassette":"' + b"a" * 200_000 + b'"}',
    "an empty name": b'{"cassette":""}',
    "a number as a name": b'{"cassette":7}',
    "a list as a name": b'{"cassette":["a"]}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
async def test_a_body_that_says_something_else_is_a_400_and_has_no_effect(
    open_world: World, body: bytes
) -> None:
    before = await _state(open_world)
    for method, path in TAKING:
        response = await open_world.call(method, path, data=body, headers=JSON)

        assert response.status == 400, (path, await response.text())
        said = await _error(response)
        assert said["code"] in ("bad_request", "bad_cassette_name")
        assert "canary" not in said["message"]
    assert await _state(open_world) == before


@pytest.mark.parametrize(
    ("path", "sent", "field"),
    [
        ("mode", {}, "mode"),
        ("mode", {"mode": "Replay"}, "mode"),
        ("mode", {"mode": 1}, "mode"),
        ("mode", {"mode": None}, "mode"),
        ("mode", {"mode": ["replay"]}, "mode"),
        ("insert", {}, "cassette"),
        ("insert", {"cassette": None}, "cassette"),
        ("insert", {"cassette": "a", "mode": "loud"}, "mode"),
        ("eject", {"prune": 1}, "prune"),
        ("eject", {"prune": "true"}, "prune"),
        ("eject", {"prune": None}, "prune"),
    ],
)
async def test_a_refusal_names_the_field(
    open_world: World, path: str, sent: object, field: str
) -> None:
    method = "PUT" if path == "mode" else "POST"

    response = await open_world.call(method, f"/api/v1/{path}", sent)

    assert response.status == 400
    assert f"field '{field}'" in (await _error(response))["message"]


async def test_an_unknown_field_is_told_from_the_known_ones(open_world: World) -> None:
    response = await open_world.call("POST", "/api/v1/eject", {"cassete": "a"})

    assert (await _error(response))["message"] == (
        "there is an unknown field; known are: 'cassette', 'prune'"
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/octet-stream"},
        {"Content-Type": "text/plain; application/json"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_a_body_not_declared_as_json_is_a_415_and_has_no_effect(
    open_world: World, headers: dict[str, str]
) -> None:
    before = await _state(open_world)
    for method, path in TAKING:
        response = await open_world.call(method, path, data=b'{"mode":"replay"}', headers=headers)

        assert response.status == 415, path
    assert await _state(open_world) == before


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize(
    "type_",
    [
        *(b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; x=y"),
        *(b"application/octet-stream", b"application/json; charset=utf-16", b""),
    ],
)
async def test_an_empty_body_is_taken_whatever_its_type(
    open_world: World, type_: bytes, framing: bytes
) -> None:
    head = b"POST /api/v1/rewind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"

    answer = await open_world.raw(head + b"Content-Type: %b\r\n" % type_ + framing)

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert open_world.broker.takes == 2


async def test_an_empty_form_of_another_site_is_refused(open_world: World) -> None:
    head = b"POST /api/v1/rewind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    more = b"Origin: https://elsewhere.test\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"

    answer = await open_world.raw(head + more + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert open_world.broker.takes == 1


@pytest.mark.parametrize(
    "more",
    [
        b"",
        b"Content-Length: 0\r\n",
        b"Content-Type: application/json\r\nContent-Length: 0\r\n",
        b"Content-Type: application/octet-stream\r\nContent-Length: 0\r\n",
        b"Content-Type: Application/JSON; charset=UTF-8\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
)
async def test_no_body_is_an_object_without_fields(open_world: World, more: bytes) -> None:
    head = b"POST /api/v1/rewind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"

    answer = await open_world.raw(head + more + (b"" if more.endswith(b"{}") else b"\r\n"))

    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert answer.endswith(b'{"takes":2}')


async def test_a_body_beyond_the_limit_is_a_413(open_world: World) -> None:
    fits = b'{"cassette":null}'.ljust(MAX_BODY)

    statuses = [
        (await open_world.call("POST", "/api/v1/rewind", data=body, headers=JSON)).status
        for body in map(BytesIO, (fits, fits + b" ", b" " * 20 * MAX_BODY))
    ]

    assert statuses == [200, 413, 413]


async def test_a_body_of_unknown_length_beyond_the_limit_is_a_413(open_world: World) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b" " * 64 * 1024

    response = await open_world.call("POST", "/api/v1/rewind", data=endless(), headers=JSON)

    assert response.status == 413
    assert open_world.broker.takes == 1


async def test_a_body_announced_too_large_need_not_be_sent(open_world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", open_world.admin_port)
    writer.write(
        b"POST /api/v1/rewind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: 99999999\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_caller_who_waits_is_told_to_send(open_world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", open_world.admin_port)
    writer.write(
        b"POST /api/v1/rewind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    interim = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"{}")
    final = await reader.read()
    writer.close()

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert final.startswith(b"HTTP/1.1 200 ")


async def test_a_caller_without_the_token_is_not_asked_for_a_body() -> None:
    async with world(token="the-token-of-this-test") as locked:
        answer = await locked.raw(
            b"POST /api/v1/rewind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"
        )

    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", ["/api/v1/rewind", "/nowhere"])
async def test_another_expectation_is_refused_and_not_repeated(
    open_world: World, path: str
) -> None:
    answer = await open_world.raw(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Expect: canary\r\nContent-Length: 0\r\n\r\n".encode()
    )

    assert answer.startswith(b"HTTP/1.1 417 ")
    assert b"canary" not in answer


@pytest.mark.parametrize(
    "query",
    [
        "journal?limit=0",
        "journal?limit=1001",
        "journal?limit=-1",
        "journal?limit=ten",
        "journal?limit=1.5",
        "journal?limit=" + "9" * 5000,
        "journal?limit=",
        "journal?limit=1&limit=2",
        "journal?outcome=lost",
        "journal?outcome=",
        "journal?cassette=..",
        "journal?cassette=%00",
        "journal?canary=1",
        "mode?cassette=a%2F%2Fb",
        "report?format=xml",
        "cassettes?limit=x",
        "cassettes/default?format=toml",
        "cassettes/default?losses=maybe",
        "cassettes?counts=perhaps",
        "cassettes?name=..",
        "cassettes/default/interactions?after=-1",
        "cassettes/default/interactions?after=x",
        "status?verbose=1",
    ],
)
async def test_a_query_that_says_something_else_is_a_400(open_world: World, query: str) -> None:
    await open_world.ask()

    response = await open_world.call("GET", f"/api/v1/{query}")

    assert response.status == 400, await response.text()
    said = await _error(response)
    assert said["code"] in ("bad_query", "bad_cassette_name")
    assert "canary" not in said["message"]


def _json_values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    leaves |= st.sampled_from(["replay", "auto", "default", "a/b"])
    keys = st.sampled_from(["mode", "cassette", "prune", "rule", "ignore"]) | st.text()
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=8
    )


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(TAKING), _json_values() | st.binary()), max_size=12))
def test_whatever_is_sent_is_answered_and_never_breaks_anything(
    calls: list[tuple[tuple[str, str], Any]],
) -> None:
    async def send() -> None:
        async with world() as found:
            for (method, path), value in calls:
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                response = await found.call(method, path, data=body, headers=JSON)
                assert response.status in (200, 400, 404, 409), (path, body, await response.text())
                if response.status != 200:
                    await _error(response)
            assert (await found.call("GET", "/api/v1/status")).status == 200

    asyncio.run(send())


async def _state(found: World) -> tuple[object, ...]:
    broker = found.broker
    return (
        broker.mode,
        broker.active,
        broker.takes,
        len(await broker.source.counts()),
        len(found.journal),
    )


async def _error(response: Any) -> dict[str, Any]:
    body = await response.json()
    assert set(body) == {"type", "error", "message", "request_id", "tapeway"}
    assert body["message"] == body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


async def test_a_large_body_is_put_together_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def chunks(*_: object) -> AsyncIterator[bytes]:
        for _each in range(3):
            yield b"x" * request_body.MIB

    joined: list[int] = []

    async def to_thread(work: Callable[[list[bytes]], bytes], pieces: list[bytes]) -> bytes:
        joined.append(len(pieces))
        return work(pieces)

    monkeypatch.setattr(request_body, "body_chunks", chunks)
    monkeypatch.setattr(asyncio, "to_thread", to_thread)

    text = await request_body.whole_body(make_mocked_request("PUT", "/"))

    assert (len(text), joined) == (3 * request_body.MIB, [3])
