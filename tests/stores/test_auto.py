"""Mode `auto` on every store: what may be out of date is asked again, and open streams come back."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tapeway.core.model.control import Mode
from tapeway.engine import open_streams
from tapeway.server import delivery
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.streaming import chunk, head
from tests.stores.contract.kinds import KINDS, Kind, Place
from tests.support.socket_upstream import Peer

SCRIPT = (b"GET /items", b"POST /items", b"GET /items", b"GET /jobs/1", b"GET /jobs/1")
EVENT = b"data: one\n\n"


@dataclass(slots=True)
class Proxies:
    """Proxies over one store, which take turns: two where processes may share it, or else one."""

    kind: Kind
    place: Place
    peer: Peer
    stack: AsyncExitStack

    async def start(self, mode: Mode) -> list[RunningProxy]:
        return [
            await self.stack.enter_async_context(
                running_proxy(self.peer.url, mode=mode, store=self.place.again())
            )
            for _ in range(2 if self.kind.shared else 1)
        ]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def proxies(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Proxies]:
    kind: Kind = request.param
    async with (
        kind.of_test(request, tmp_path) as place,
        Peer() as peer,
        AsyncExitStack() as stack,
    ):
        yield Proxies(kind, place, peer, stack)


def answer(body: bytes) -> bytes:
    fields = b"Content-Type: application/json\r\nContent-Length: %d" % len(body)
    return b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (fields, body)


async def test_reads_after_writes_and_polls_are_asked_again_and_replay_in_order(
    proxies: Proxies,
) -> None:
    bodies = [b"[]", b"{}", b"[1]", b'{"status":"queued"}', b'{"status":"done"}']
    for body in bodies:
        proxies.peer.then(answer(body))
    running = await proxies.start("auto")
    for body in [b'{"status":"done"}'] * len(running):
        proxies.peer.then(answer(body))

    live = [await running[at % len(running)].ask(line) for at, line in enumerate(SCRIPT)]
    again = [await proxy.ask(b"GET /jobs/1") for proxy in running]
    stored = await running[0].recorded()
    await running[0].broker.set_mode("replay")
    replayed = [await running[at % len(running)].ask(line) for at, line in enumerate(SCRIPT)]

    assert [item.again for item in stored] == [0, 0, 0, 0, len(running)]
    assert [response.outcome for response in live] == [b"recorded"] * len(SCRIPT)
    assert [(response.outcome, response.body) for response in again] == [
        (b"recorded", b'{"status":"done"}') for _ in running
    ]
    assert [response.outcome for response in replayed] == [b"replayed"] * len(SCRIPT)
    assert (
        [response.body for response in replayed] == [response.body for response in live] == bodies
    )


async def test_a_stream_that_was_open_is_stored_and_comes_back(
    proxies: Proxies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "PAUSE_S", 0.0)
    monkeypatch.setattr(delivery, "PATIENCE_S", 0.0)
    proxies.peer.then(head(b"text/event-stream"), chunk(EVENT), "stall")
    first, *_ = await proxies.start("auto")
    async with first.connect() as app:
        await app.send(first.request(b"GET /events"))
        await app.until(EVENT + b"\r\n")
        await first.broker.eject()
        assert await app.until(b"0\r\n\r\n")
    (found,) = await first.recorded()
    assert (found.response.verdict, found.response.after_requests) == ("open", (1, 1))

    await first.broker.set_mode("replay")
    async with first.connect() as app:
        await app.send(first.request(b"GET /events"))
        assert b"Tapeway-Outcome: replayed" in await app.until(EVENT + b"\r\n")
