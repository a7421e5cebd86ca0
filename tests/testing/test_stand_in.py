"""The stand-in on loopback, for callers that await and for those that block."""

import gzip
import socket
import zlib

import orjson
import pytest
from aiohttp import ClientSession

from tapeway.testing import StandIn, ThreadedStandIn
from tests.clients.programs.raw_socket import Wire, exchange, send_bytes
from tests.testing.wires import chat, post


def events(wire: Wire) -> list[bytes]:
    return wire.body.split(b"\n\n")[:-1]


async def test_each_write_is_an_http_chunk_of_its_own() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/v1/chat/completions", chat("日本語", stream=True))

        assert wire.chunked
        assert wire.complete
        assert wire.chunks == upstream.requests[0].answer.writes


async def test_a_stream_is_cut_and_joined_at_awkward_places() -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, "/v1/chat/completions", chat("hello there", stream=True))

        assert any(chunk.count(b"data: ") > 1 for chunk in wire.chunks), "two events in one"
        assert any(not chunk.endswith(b"\n\n") for chunk in wire.chunks), "an event over two"
        assert any(0x80 <= chunk[0] < 0xC0 for chunk in wire.chunks), "a character in two"


async def test_gaps_change_no_boundary() -> None:
    async with StandIn(gap_s=0.001) as upstream:
        wire = await post(upstream.url, "/v1/chat/completions", chat("hello", stream=True))

        assert wire.chunks == upstream.requests[0].answer.writes


async def test_the_log_has_the_request_as_it_came() -> None:
    sent = (
        b"POST /v1/chat/completions?b=2&a=%7E HTTP/1.1\r\nhost: example.test\r\nX-Two: 1\r\n"
        b"x-two: 2\r\nAuthorization: Bearer sk-1\r\nContent-Length: 2\r\n\r\n{}"
    )
    async with StandIn() as upstream:
        await send_bytes(upstream.url, sent)
        (received,) = upstream.requests

        assert received.raw == sent
        assert received.target == "/v1/chat/completions?b=2&a=%7E"
        assert received.headers[:3] == (("host", "example.test"), ("X-Two", "1"), ("x-two", "2"))
        assert (received.method, received.version, received.body) == ("POST", "HTTP/1.1", b"{}")
        assert received.header("AUTHORIZATION") == "Bearer sk-1"


async def test_requests_on_one_connection_are_told_apart() -> None:
    async with StandIn() as upstream, ClientSession(upstream.url) as client:
        for path in ("/api/version", "/api/tags"):
            async with client.get(path) as answer:
                await answer.read()

        first, second = upstream.requests
        assert (first.connection, second.connection, upstream.connections) == (1, 1, 1)
        assert first.raw.startswith(b"GET /api/version ")
        assert second.raw.startswith(b"GET /api/tags ")
        assert second.raw.count(b"GET") == 1


@pytest.mark.parametrize(
    ("coding", "encode"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_a_compressed_upload_is_understood_and_logged_as_it_came(
    coding: str, encode: "type[bytes]"
) -> None:
    body = encode(orjson.dumps(chat("packed")))
    async with StandIn() as upstream:
        fields = (("Content-Encoding", coding),)
        wire = await exchange(upstream.url, "POST", "/v1/chat/completions", fields, body)

        assert b"packed" in wire.body
        assert upstream.requests[0].body == body


async def test_an_answer_is_compressed_only_for_clients_that_accept_it() -> None:
    async with StandIn(codings=("br", "gzip")) as upstream:
        fields = (("Accept-Encoding", "deflate, gzip;q=0.5"),)
        packed = await exchange(upstream.url, "GET", "/v1/models", fields)
        plain = await exchange(upstream.url, "GET", "/v1/models")

        assert packed.values("content-encoding") == ["gzip"]
        assert gzip.decompress(packed.body) == plain.body
        assert [request.plain.body for request in upstream.requests] == [plain.body] * 2


async def test_a_chunked_upload_is_read() -> None:
    body = orjson.dumps(chat("in chunks"))
    chunked = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (9, body[:9], len(body) - 9, body[9:])
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with StandIn() as upstream:
        wire = await send_bytes(upstream.url, head + chunked)

        assert b"in chunks" in wire.body
        assert upstream.requests[0].raw == head + chunked


async def test_an_old_client_gets_the_same_bytes_without_chunks() -> None:
    body = orjson.dumps(chat("old", stream=True))
    head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with StandIn() as upstream:
        wire = await send_bytes(upstream.url, head + body)

        assert not wire.chunked
        assert wire.body == upstream.requests[0].answer.body


async def test_a_call_without_a_key_is_refused_where_keys_are_required() -> None:
    async with StandIn(require_credential=True) as upstream:
        refused = await post(upstream.url, "/v1/chat/completions", chat("hello"))
        by_query = await post(
            upstream.url, "/v1beta/models/gemini-2.5-flash:generateContent?key=k", {}
        )
        keyless = await exchange(upstream.url, "GET", "/api/version")

        assert (refused.status, by_query.status, keyless.status) == (401, 200, 200)


async def test_an_unknown_path_gets_the_error_of_openai() -> None:
    async with StandIn() as upstream:
        wire = await exchange(upstream.url, "GET", "/nowhere")

        assert wire.status == 404
        assert orjson.loads(wire.body)["error"]["message"] == "Invalid URL (GET /nowhere)"


async def test_ids_and_cookies_are_new_each_time() -> None:
    async with StandIn() as upstream:
        first, second = [
            await post(upstream.url, "/v1/chat/completions", chat("hello")) for _ in range(2)
        ]

        assert orjson.loads(first.body)["id"] != orjson.loads(second.body)["id"]
        assert first.values("x-request-id") != second.values("x-request-id")
        assert len(first.values("set-cookie")) == 2
        assert not set(first.values("set-cookie")) & set(second.values("set-cookie"))


async def test_stopping_closes_the_open_connections() -> None:
    async with StandIn() as upstream:
        url = upstream.url
        await exchange(url, "GET", "/api/version")
        await upstream.stop()

        with pytest.raises(ConnectionRefusedError):
            await exchange(url, "GET", "/api/version")
        assert len(upstream.requests) == 1


def fetch(url: str, method: bytes = b"GET") -> bytes:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            method + b" /api/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_it_serves_callers_that_block() -> None:
    with ThreadedStandIn() as upstream:
        assert fetch(upstream.url).endswith(b'{"version":"0.12.6"}')
        assert [request.target for request in upstream.requests] == ["/api/version"]
        assert upstream.connections == 1


def test_an_answer_to_head_has_no_body() -> None:
    with ThreadedStandIn() as upstream:
        assert fetch(upstream.url, b"HEAD").endswith(b"\r\n\r\n")


def test_a_stopped_stand_in_refuses_connections_until_it_is_started_again() -> None:
    with ThreadedStandIn() as upstream:
        url = upstream.url
        upstream.stop()
        with pytest.raises(ConnectionRefusedError):
            fetch(url)
        upstream.start()
        assert upstream.url == url
        assert fetch(url)
