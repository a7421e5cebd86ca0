"""Each failed call is one warning, which names the call and the code; equal ones share a line."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.engine import request_log
from tapeway.errors import StoreFull
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.file.store import FileStore
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import running_proxy
from tests.server.streaming import chunk, head, routes
from tests.support.canary import canary
from tests.support.fakes.failing_store import FakeStore
from tests.support.raw_client import Answer
from tests.support.socket_upstream import OK, Peer, Step
from tests.support.streams import CHAT, SSE

ASK = b"POST /openai/v1/chat/completions"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
STREAM = ProxyOptions(max_body=2**23, body_idle_s=10, delivery="stream")

FAULTS: dict[str, tuple[tuple[Step, ...], str]] = {
    "reset": (("reset",), "upstream_reset"),
    "truncated": ((SHORT, "close"), "upstream_truncated"),
    "cut inside a stream": ((head(SSE), chunk(CHAT), "close"), "upstream_truncated"),
    "silent": (("stall",), "upstream_timeout"),
    "broken": ((b"nonsense\r\n\r\n", "close"), "upstream_protocol"),
}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """The records of failed calls."""
    return [record for record in caplog.records if record.name == "tapeway.failures"]


async def answer_or_none(asked: Any) -> Answer | None:
    """The answer, None if the connection ended before the answer did."""
    try:
        answer: Answer = await asked
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return answer


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_call_is_one_warning_with_route_path_code_and_request_id(
    fault: str, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps, code = FAULTS[fault]
    options = STREAM if delivery == "stream" else replace(STREAM, delivery="buffer")
    async with (
        Peer(*steps) as peer,
        running_proxy(
            routes=routes(peer.url), options=options, limits=Limits(connect_s=60, idle_s=0.3)
        ) as proxy,
    ):
        answer = await answer_or_none(
            proxy.ask(ASK, b"X-Request-Id: order-7", body=b'{"stream":true}')
        )
        await proxy.proxy.wait_until_idle()
        [entry] = proxy.journal

    [warning] = warnings_of(caplog)
    assert (warning.route, warning.method, warning.path, warning.code) == (
        *("openai", "POST", "/v1/chat/completions"),
        code,
    )
    assert (warning.id, warning.request_id, warning.times) == (entry.id, "order-7", 1)
    if answer is not None and answer.outcome == b"error":
        assert answer.value(b"x-request-id").decode() == warning.id
        assert answer.status == warning.status
    assert warning.getMessage().startswith("a call failed: upstream ")


async def test_an_answer_that_cannot_be_stored_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    store.fail("append", StoreFull("no room to write the recording"))
    async with Peer(OK) as peer, running_proxy(peer.url, store=store) as proxy:
        assert (await proxy.ask(b"GET /a")).status == 507

    [warning] = warnings_of(caplog)
    assert (warning.route, warning.path, warning.code) == ("default", "/a", "recording_failed")


async def test_a_recorded_body_that_is_gone_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = b"x" * 2**21
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    store = FileStore(tmp_path)
    async with Peer(large + body) as peer, running_proxy(peer.url, store=store) as proxy:
        assert (await proxy.ask(b"GET /large")).status == 200
        await proxy.broker.set_mode("replay")
        [asset] = tmp_path.glob("*.assets/*")
        asset.write_bytes(b"y" * len(body))
        assert not (await proxy.ask(b"GET /large")).complete

    [warning] = warnings_of(caplog)
    assert (warning.route, warning.path, warning.code) == ("default", "/large", "cassette_corrupt")


async def test_equal_failures_share_lines_that_count_them(caplog: pytest.LogCaptureFixture) -> None:
    async with Peer("reset") as peer, running_proxy(peer.url) as proxy:
        for number in range(1, 13):
            await proxy.ask(b"GET /a")
            if number % 5 == 0:
                await proxy.ask(b"GET /b")
        assert [warning.times for warning in warnings_of(caplog)] == [1, 1, 10]
        proxy.proxy.failures.end_rows()

    warnings = warnings_of(caplog)
    assert [(warning.path, warning.times) for warning in warnings] == [
        *(("/a", 1), ("/b", 1), ("/a", 10), ("/a", 12), ("/b", 2)),
    ]
    assert warnings[2].getMessage().startswith("10 calls failed alike: upstream ")
    ids = [entry.id for entry in proxy.journal if entry.path == "/a"]
    assert warnings[3].id == ids[0]


async def test_a_row_of_equal_failures_ends_when_no_further_one_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = asyncio.Event()
    monkeypatch.setattr(request_log, "QUIET_S", 0.01)
    monkeypatch.setattr(
        caplog.handler, "emit", lambda record: told.set() if record.times == 3 else None
    )
    async with Peer("reset") as peer, running_proxy(peer.url) as proxy:
        async with proxy.connect() as client:
            sent = proxy.request(b"GET /a")
            for _ in range(3):
                await client.ask(sent)
        async with asyncio.timeout(60):
            await told.wait()


async def test_a_client_that_leaves_is_no_failed_call(caplog: pytest.LogCaptureFixture) -> None:
    event = chunk(CHAT)
    async with (
        Peer(head(SSE), *[event] * 50_000) as peer,
        running_proxy(mode="passthrough", routes=routes(peer.url)) as proxy,
    ):
        async with proxy.connect() as client:
            await client.send(proxy.request(ASK, body=b'{"stream":true}'))
            await client.until(event)
        await peer.left.wait()
        await proxy.proxy.wait_until_idle()
        assert proxy.journal.counts == {"error": 1}

    assert warnings_of(caplog) == []


async def test_no_secret_of_a_failed_call_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    secret = canary()
    async with Peer("reset") as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(f"GET /a?api_key={secret}".encode(), f"x-api-key: {secret}".encode())

    [warning] = warnings_of(caplog)
    assert warning.path.startswith("/a?api_key=")
    assert secret not in str(vars(warning))
