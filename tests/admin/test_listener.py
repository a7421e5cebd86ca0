"""Malformed HTTP on the admin listener: answered in words of our own, never repeated."""

import logging

import pytest

from tests.admin.admin_and_proxy import World, world

HOST = b"Host: localhost\r\n"
MALFORMED = {
    "a control character in a value": b"GET / HTTP/1.1\r\n%bX: canary\x01\r\n\r\n" % HOST,
    "a header without a colon": b"GET / HTTP/1.1\r\n%bcanary\r\n\r\n" % HOST,
    "a space before the colon": b"GET / HTTP/1.1\r\n%bcanary : x\r\n\r\n" % HOST,
    "no HTTP": b"canary canary canary\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n%bContent-Length: 1\r\nContent-Length: 2\r\n\r\n" % HOST,
    "length and chunks": (
        b"POST / HTTP/1.1\r\n%bContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" % HOST
    ),
    "a length in words": b"POST / HTTP/1.1\r\n%bContent-Length: canary\r\n\r\n" % HOST,
    "two hosts": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: canary\r\n\r\n",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_malformed_is_refused_and_not_repeated(
    open_world: World, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    answer = await open_world.raw(sent)

    assert answer[9:12] in (b"400", b"403", b"405"), answer
    assert b'"type":"error"' in answer
    assert b"nosniff" in answer
    assert b"canary" not in answer
    assert "canary" not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /%b HTTP/1.1\r\n%b\r\n" % (b"x" * 20_000, HOST),
        b"GET / HTTP/1.1\r\n%bX: %b\r\n\r\n" % (HOST, b"x" * 40_000),
        b"GET / HTTP/1.1\r\n%bX: %b\r\n\r\n" % (HOST, b"x" * 4_000_000),
    ],
)
async def test_what_is_too_long_is_a_431(open_world: World, sent: bytes) -> None:
    answer = await open_world.raw(sent)

    assert answer[9:12] == b"431", answer[:200]


async def test_too_many_headers_are_refused(open_world: World) -> None:
    fields = b"".join(b"X-%d: y\r\n" % number for number in range(500))

    answer = await open_world.raw(b"GET /healthz HTTP/1.1\r\n" + HOST + fields + b"\r\n")

    assert answer[9:12] in (b"400", b"431"), answer[:200]


@pytest.mark.parametrize("method", [b"FOO", b"x-own", b"G!T"])
async def test_a_method_nobody_knows_is_a_405(open_world: World, method: bytes) -> None:
    answer = await open_world.raw(b"%b /api/v1/mode HTTP/1.1\r\n%b\r\n" % (method, HOST))

    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert head[9:12] == b"405"
    assert b"allow: delete, get, head, post, put" in head
    assert method.lower() not in answer.lower()


@pytest.mark.parametrize(
    "line", [b"OPTIONS * HTTP/1.1", b"CONNECT example.com:443 HTTP/1.1", b"TRACE / HTTP/1.1"]
)
async def test_it_is_no_tunnel_and_no_mirror(open_world: World, line: bytes) -> None:
    answer = await open_world.raw(line + b"\r\n" + HOST + b"Connection: close\r\nX: canary\r\n\r\n")

    assert answer[9:12] in (b"400", b"404", b"405"), answer[:200]
    assert b"canary" not in answer


async def test_a_token_in_a_malformed_request_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with world(token="canary-token-1234") as locked:
        answer = await locked.raw(
            b"GET / HTTP/1.1\r\n%bAuthorization: Bearer canary-token-1234\x01\r\n\r\n" % HOST
        )

    assert answer[9:12] == b"400"
    assert b"canary" not in answer
    assert "canary" not in caplog.text
