"""What may be out of date is asked again on every way through the proxy."""

import asyncio

from tests.server.in_process_proxy import running_proxy
from tests.server.streaming import LAST, chunk, head, streaming
from tests.support.socket_upstream import Peer


def answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    fields = b"Content-Type: application/json\r\nContent-Length: %d" % len(body)
    return b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, fields, body)


async def test_a_connection_that_stays_open_polls_a_job_to_its_end() -> None:
    running, done = answer(b'{"status":"running"}'), answer(b'{"status":"done"}')
    async with (
        Peer(done).then(running).then(running) as peer,
        running_proxy(peer.url, mode="auto") as proxy,
        proxy.connect() as app,
    ):
        polled = [await app.ask(proxy.request(b"GET /jobs/1")) for _ in range(5)]
        await proxy.broker.set_mode("replay")
        again = [await app.ask(proxy.request(b"GET /jobs/1")) for _ in range(5)]

    assert [response.outcome for response in polled] == [b"recorded"] * 5
    assert [response.body for response in again] == [response.body for response in polled]


async def test_a_connection_that_stays_open_reads_what_another_one_wrote() -> None:
    async with (
        Peer(answer(b"[1]"))
        .then(answer(b"[]"))
        .then(answer(b"[]"))
        .then(answer(b"{}", b"201 Created")) as peer,
        running_proxy(peer.url, mode="auto") as proxy,
        proxy.connect() as app,
    ):
        before = [await app.ask(proxy.request(b"GET /items")) for _ in range(2)]
        await proxy.ask(b"POST /items/new", body=b"one")
        after = [await app.ask(proxy.request(b"GET /items")) for _ in range(2)]

    assert [response.body for response in (*before, *after)] == [b"[]", b"[]", b"[1]", b"[1]"]
    assert [response.outcome for response in (*before, *after)] == [b"recorded"] * 4


async def test_who_sees_the_head_of_a_write_reads_what_was_written() -> None:
    gate = asyncio.Event()
    writing = (head(b"text/plain"), chunk(b"{"), gate, chunk(b"}"), LAST)
    async with (
        Peer(answer(b"[1]")).then(answer(b"[]")).then(*writing) as peer,
        running_proxy(peer.url, mode="auto", options=streaming()) as proxy,
        proxy.connect() as app,
    ):
        assert (await proxy.ask(b"GET /items")).body == b"[]"
        await app.send(proxy.request(b"POST /items", body=b"one"))
        await app.until(b"{")
        during = await proxy.ask(b"GET /items")
        gate.set()
        await app.until(LAST)
        after = [await proxy.ask(b"GET /items") for _ in range(2)]

    assert [response.outcome for response in (during, *after)] == [b"recorded"] * 3
    assert during.body == b"[1]"


async def test_a_write_that_broke_off_may_have_been_made() -> None:
    async with (
        Peer(answer(b"[1]")).then(answer(b"[]")).then("reset") as peer,
        running_proxy(peer.url, mode="auto") as proxy,
    ):
        assert (await proxy.ask(b"GET /items")).body == b"[]"
        assert (await proxy.ask(b"POST /items", body=b"one")).status == 502
        assert (await proxy.ask(b"GET /items")).body == b"[1]"
