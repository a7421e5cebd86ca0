"""JSON-RPC over HTTP: recordings answer calls under the names that the client of today draws."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.matching.rules import Rules
from tapeway.engine import open_streams
from tapeway.stores.opening import open_store
from tests.server.in_process_proxy import HitsOn, RunningProxy, running_proxy
from tests.server.streaming import LAST, chunk, head
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer

SSE, JSON = b"text/event-stream", b"Content-Type: application/json"
LINE = b"POST /mcp"


def call(id: object, name: str, **more: object) -> bytes:
    params = {"name": name, **more}
    return json.dumps(
        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    ).encode()


def result(id: object, text: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": {"text": text}}).encode()


def event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


def plain(body: bytes, *fields: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", JSON, b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join([*lines, b"", body])


async def asked(proxy: RunningProxy, body: bytes, *fields: bytes) -> Answer:
    return await proxy.ask(LINE, JSON, *fields, body=body)


def read(answer: Answer) -> Any:
    return json.loads(answer.body)


@pytest.mark.parametrize("hits", ["front", "ordinary", "nowhere"])
@pytest.mark.parametrize("rules", [None, Rules(ignore=("body.id",))])
async def test_calls_in_another_order_get_their_own_answers(
    hits: HitsOn, rules: Rules | None
) -> None:
    async with (
        Peer().then(plain(result(1, "of a"))).then(plain(result(2, "of b"))) as peer,
        running_proxy(peer.url, hits=hits) as proxy,
    ):
        for id, name in ((1, "a"), (2, "b")):
            assert (await asked(proxy, call(id, name))).outcome == b"recorded"
        if rules is not None:
            await proxy.broker.add_rules("default", rules)
        await proxy.broker.set_mode("replay")

        later: list[tuple[int | str, str]] = [(1, "b"), ("2", "a"), (1, "b"), (1, "a"), (900, "a")]
        for asking, name in later:
            answer = await asked(proxy, call(asking, name))
            assert answer.outcome == b"replayed"
            assert read(answer) == json.loads(result(asking, f"of {name}"))
        assert (await asked(proxy, call(1, "c"))).status == 400


async def test_calls_of_a_database_are_told_apart_by_what_they_ask(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path}/tapeway.db")
    await store.open()
    async with (
        Peer().then(plain(result(1, "of a"))).then(plain(result(2, "of b"))) as peer,
        running_proxy(peer.url, store=store) as proxy,
    ):
        for id, name in ((1, "a"), (2, "b")):
            await asked(proxy, call(id, name))
        await proxy.broker.set_mode("replay")

        for id, name in ((1, "b"), (2, "a"), (1, "b"), (7, "a")):
            assert read(await asked(proxy, call(id, name))) == json.loads(result(id, f"of {name}"))
    await store.close()


async def test_the_answers_of_a_batch_name_the_calls_of_the_batch() -> None:
    batch = b"[%b,%b]" % (call(1, "a"), call(2, "b"))
    answers = chunk(event(result(2, "of b"))), chunk(event(result(1, "of a")))
    async with (
        Peer().then(head(SSE), *answers, LAST) as peer,
        running_proxy(peer.url) as proxy,
    ):
        await asked(proxy, batch)
        await proxy.broker.set_mode("replay")
        answer = await asked(proxy, b"[%b, %b]" % (call(2, "a"), call("x", "b")))

    assert answer.chunks == [event(result("x", "of b")), event(result(2, "of a"))]


async def test_progress_names_the_call_of_today_and_a_question_keeps_the_name_of_the_service() -> (
    None
):
    def progress(token: object) -> bytes:
        params = {"progressToken": token, "progress": 1}
        message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        return event(json.dumps(message).encode())

    question = event(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    events = chunk(progress(1)), chunk(question), chunk(event(result(1, "done")))
    told = b'{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}'
    accepted = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    async with (
        Peer().then(head(SSE), *events, LAST).then(accepted) as peer,
        running_proxy(peer.url) as proxy,
    ):
        await asked(proxy, call(1, "a", _meta={"progressToken": 1}))
        await asked(proxy, told)
        await proxy.broker.set_mode("replay")
        answer = await asked(proxy, call(5, "a", _meta={"progressToken": 5}))

        assert answer.chunks == [progress(5), question, event(result(5, "done"))]
        assert (await asked(proxy, told)).status == 202
        assert (await asked(proxy, told.replace(b":1", b":2"))).status == 400


async def test_equal_calls_at_the_same_time_get_their_own_names() -> None:
    both = asyncio.Event()
    async with (
        Peer(both, plain(result(1, "one"))).then(both, plain(result(1, "one"))) as peer,
        running_proxy(peer.url, mode="auto") as proxy,
        proxy.connect() as first,
        proxy.connect() as second,
    ):
        peer.then(both, plain(result(2, "two")))
        await first.send(proxy.request(LINE, JSON, body=call(1, "a")))
        await peer.asked.wait()
        peer.asked.clear()
        await second.send(proxy.request(LINE, JSON, body=call(2, "a")))
        await peer.asked.wait()
        both.set()

        assert read(await first.answer(b"POST"))["id"] == 1
        assert read(await second.answer(b"POST"))["id"] == 2


async def test_a_coded_request_is_named_as_it_was_sent() -> None:
    coded = b"Content-Encoding: gzip"
    async with (
        Peer().then(plain(result(1, "of a"))) as peer,
        running_proxy(peer.url) as proxy,
    ):
        await asked(proxy, gzip.compress(call(1, "a")), coded)
        await proxy.broker.set_mode("replay")

        assert read(await asked(proxy, gzip.compress(call(2, "a")), coded))["id"] == 2


async def test_a_standing_stream_names_the_calls_of_this_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_streams, "PAUSE_S", 0.0)
    accepted = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    answers, hello = [asyncio.Event(), asyncio.Event()], event(b"hello")
    async with (
        Peer(accepted).then(
            *(head(SSE), chunk(hello)),
            *(answers[0], chunk(event(result(1, "of a")))),
            *(answers[1], chunk(event(result(2, "of b"))), "stall"),
        ) as peer,
        running_proxy(peer.url, mode="auto") as proxy,
    ):
        for ids in ((1, 2), (11, 12)):
            async with proxy.connect() as stream:
                await stream.send(proxy.request(b"GET /mcp", b"Accept: text/event-stream"))
                await stream.until(hello + b"\r\n")
                for id, name, answered in zip(ids, "ab", answers, strict=True):
                    assert (await asked(proxy, call(id, name))).status == 202
                    answered.set()
                    await stream.until(event(result(id, f"of {name}")) + b"\r\n")
            await proxy.broker.set_mode("replay")
