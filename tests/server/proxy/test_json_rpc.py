"""MCP over streamable HTTP: a server that asks its client something before its response ends."""

import asyncio

import pytest

from tapeway.core.model.control import Delivery
from tapeway.errors import StoreFull
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import running_proxy
from tests.server.streaming import LAST, chunk, head
from tests.support.fakes.broker import until
from tests.support.fakes.failing_store import FakeStore
from tests.support.socket_upstream import Peer

SSE = b"text/event-stream"
LINE = b"POST /mcp"
JSON = b"Content-Type: application/json"
CALL = b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"ask"}}'
TOLD = b'{"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{"city":"Rome"}}}'
QUESTION = b'event: message\ndata: {"jsonrpc":"2.0","id":0,"method":"elicitation/create"}\n\n'
RESULT = b'event: message\ndata: {"jsonrpc":"2.0","id":3,"result":{"content":[]}}\n\n'
PROGRESS = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
BOTH = pytest.mark.parametrize("delivery", ["buffer", "stream"])


def options(delivery: Delivery) -> ProxyOptions:
    return ProxyOptions(max_body=2**20, body_idle_s=10, delivery=delivery)


@BOTH
async def test_a_question_reaches_the_client_and_its_answer_the_server(delivery: Delivery) -> None:
    answered, store = asyncio.Event(), FakeStore()
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="auto", store=store, options=options(delivery)) as proxy,
        proxy.connect() as app,
    ):
        peer.then(head(SSE), chunk(QUESTION), answered, chunk(RESULT), LAST).then(ACCEPTED)
        await app.send(proxy.request(LINE, JSON, body=CALL))
        said = await app.until(QUESTION + b"\r\n")
        assert b"Tapeway-Outcome: recorded" in said
        assert (await proxy.ask(LINE, JSON, body=TOLD)).status == 202
        answered.set()
        assert await app.until(LAST) == chunk(RESULT) + LAST
        assert len(await proxy.recorded()) == 2

        await proxy.broker.set_mode("replay")
        # The result waits for the answer to the question, as it did.
        await app.send(proxy.request(LINE, JSON, body=CALL))
        said = await app.until(QUESTION + b"\r\n")
        assert b"Tapeway-Outcome: replayed" in said
        assert proxy.proxy.in_flight == 1
        assert (await proxy.ask(LINE, JSON, body=TOLD)).status == 202
        assert await app.until(LAST) == chunk(RESULT) + LAST


@BOTH
async def test_the_result_is_not_sent_before_it_is_durable(delivery: Delivery) -> None:
    store = FakeStore()
    async with (
        Peer(head(SSE), chunk(QUESTION), chunk(RESULT), LAST) as peer,
        running_proxy(peer.url, mode="auto", store=store, options=options(delivery)) as proxy,
        proxy.connect() as app,
    ):
        gate = store.shut("append")
        await app.send(proxy.request(LINE, JSON, body=CALL))
        await app.until(QUESTION + b"\r\n")
        await store.reached("append default")
        assert await proxy.recorded() == []
        gate.set()

        assert await app.until(LAST) == chunk(RESULT) + LAST


async def test_a_response_without_a_question_is_sent_as_a_whole() -> None:
    store = FakeStore()
    store.fail("append", StoreFull("disk is full"))
    async with (
        Peer(head(SSE), chunk(PROGRESS), chunk(RESULT), LAST) as peer,
        running_proxy(peer.url, mode="auto", store=store, options=options("buffer")) as proxy,
    ):
        # Nothing was sent, so the error has a status of its own.
        assert (await proxy.ask(LINE, JSON, body=CALL)).status == 507
        answer = await proxy.ask(LINE, JSON, body=CALL)

        assert (answer.outcome, answer.chunks) == (b"recorded", [PROGRESS, RESULT])


@BOTH
async def test_a_result_waits_for_an_answer_to_a_question_on_another_stream(
    delivery: Delivery,
) -> None:
    answered, store = asyncio.Event(), FakeStore()
    result = b'{"jsonrpc":"2.0","id":3,"result":{}}'
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    async with (
        Peer(ACCEPTED).then(answered, plain % len(result), result) as peer,
        running_proxy(peer.url, mode="auto", store=store, options=options(delivery)) as proxy,
        proxy.connect() as app,
    ):
        for mode in ("auto", "replay"):
            await app.send(proxy.request(LINE, JSON, body=CALL))
            await until(lambda: proxy.proxy.in_flight == 1)
            if mode == "auto":
                await peer.asked.wait()
            assert (await proxy.ask(LINE, JSON, body=TOLD)).status == 202
            answered.set()
            assert (await app.answer(b"POST")).body == result
            await proxy.broker.set_mode("replay")

        assert [answer.outcome for answer in proxy.journal] == ["replayed"] * 2 + ["recorded"] * 2
        (call, _) = await proxy.recorded()
        assert call.response.after_requests == (1, 2)
