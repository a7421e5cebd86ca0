"""When a client disconnects, its call is still read to its end and recorded."""

import asyncio

import pytest

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.control import Mode
from tapeway.engine.recording.selection import Policy
from tapeway.stores.memory import MemoryStore
from tests.server.http.test_framing import CHUNKED, EVENTS
from tests.server.in_process_proxy import running_proxy
from tests.support.reuse import REUSED
from tests.support.socket_upstream import OK, Peer, Step

HEAD, LAST = CHUNKED[0], CHUNKED[-1]
PIECES = CHUNKED[1:-1]


class NotifyingStore(MemoryStore):
    """A store that sets an event at its first recording."""

    def __init__(self) -> None:
        super().__init__()
        self.appended = asyncio.Event()

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        await super().append(name, head, recording)
        self.appended.set()


@pytest.mark.parametrize("mode", ["record", "auto"])
@pytest.mark.parametrize("when", ["before the head", "in the body", "before the last chunk"])
async def test_the_upstream_is_read_to_its_end_when_the_client_has_left(
    when: str, mode: Mode
) -> None:
    go = asyncio.Event()
    steps: dict[str, tuple[Step, ...]] = {
        "before the head": (go, *CHUNKED),
        "in the body": (HEAD, PIECES[0], go, *PIECES[1:], LAST),
        "before the last chunk": (HEAD, *PIECES, go, LAST),
    }
    store = NotifyingStore()
    async with Peer(*steps[when]) as peer, running_proxy(peer.url, mode=mode, store=store) as proxy:
        async with proxy.connect() as app:
            await app.send(proxy.request(b"POST /v1", body=b"{}"))
            await peer.asked.wait()
        go.set()
        await store.appended.wait()

        [recorded] = await proxy.recorded()
        assert recorded.response.pieces() == EVENTS
        await proxy.broker.set_mode("replay")
        again = await proxy.ask(b"POST /v1", body=b"{}")
        assert (again.outcome, again.chunks) == (b"replayed", EVENTS)
        assert len(peer.requests) == 1


async def test_a_client_may_leave_at_its_own_end_mark() -> None:
    async with Peer(*CHUNKED) as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        async with proxy.connect() as app:
            await app.send(proxy.request(b"POST /v1", body=b"{}"))
            await app.until(b"data: [DONE]\n\n")
        again = await proxy.ask(b"POST /v1", body=b"{}")

        assert (again.outcome, again.chunks) == (b"replayed", EVENTS)
        assert len(peer.requests) == 1


async def test_a_relayed_call_ends_when_its_client_disconnects() -> None:
    async with (
        Peer(HEAD, *PIECES, "stall") as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
    ):
        peer.then(HEAD, *[PIECES[0]] * 50_000, LAST)
        async with proxy.connect() as app:
            await app.send(proxy.request())
            await app.until(PIECES[0])
        await peer.left.wait()

        assert len(peer.requests) == 1
        [entry] = proxy.journal
        assert (entry.outcome, entry.status) == ("error", 400)


async def test_a_client_that_leaves_inside_its_request_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for sent in (
            b"GET",
            b"GET / HTTP/1.1\r\nHo",
            proxy.request(b"POST /", b"Content-Length: 9"),
        ):
            async with proxy.connect() as app:
                await app.send(sent)
        assert (await proxy.ask()).status == 200

        assert len(peer.requests) == 1
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("mode", ["record", "passthrough", "replay"])
async def test_a_client_that_has_finished_sending_gets_every_answer(mode: Mode) -> None:
    async with Peer() as peer, running_proxy(peer.url, mode=mode) as proxy, proxy.connect() as app:
        await app.send(proxy.request(b"GET /1") + proxy.request(b"POST /2", body=b"hello"))
        app.finish()
        answers = [await app.answer() for _ in range(2)]

        assert [answer.status for answer in answers] == [400 if mode == "replay" else 200] * 2
        assert await app.rest() == b""


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHo"])
async def test_a_client_that_finishes_inside_a_header_gets_nothing(sent: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        await app.send(sent)
        app.finish()

        assert await app.rest() == b""
        assert peer.connections == 0


async def test_an_answer_too_large_is_not_read_to_its_end() -> None:
    endless = [b"10000\r\n" + b"x" * 0x10000 + b"\r\n"] * 1000
    async with Peer(OK) as peer, running_proxy(peer.url, policy=Policy(max_body=100_000)) as proxy:
        peer.then(HEAD, *endless)
        assert (await proxy.ask()).status == 502
        await peer.left.wait()
