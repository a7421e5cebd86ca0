"""A replayed answer asks its client for no wait; a live one and the cassette keep the real one."""

import pytest

from tapeway.core.streams.pacing import Pace
from tapeway.server.proxy import ProxyOptions
from tests.peer import Peer
from tests.server.stand import MIB, stand

WAITS = (b"Retry-After", b"retry-after-ms")


def busy(*fields: bytes, status: bytes = b"429 Too Many Requests") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: 4", *fields, b"", b"busy"]
    return b"\r\n".join(lines)


@pytest.mark.parametrize("more", [(), (b"Location: /elsewhere",)], ids=["plain", "located"])
async def test_the_wait_is_live_and_in_the_cassette_and_not_in_the_replay(
    more: tuple[bytes, ...],
) -> None:
    said = (b"Retry-After: 20", b"x-ratelimit-reset-requests: 20s", b"x-should-retry: true", *more)
    async with Peer(busy(*said)) as peer, stand(peer.url) as proxy:
        live = await proxy.ask()
        await proxy.broker.set_mode("replay")
        replayed = [await proxy.ask() for _ in range(2)]
        (kept,) = await proxy.recorded()

    assert [live.values(name) for name in WAITS] == [[b"20"], []]
    assert [value for name, value in kept.response.headers if name in WAITS] == [b"20"]
    for answer in replayed:
        assert (answer.status, answer.body) == (429, b"busy")
        assert [answer.values(name) for name in WAITS] == [[b"0"], [b"1"]]
        assert answer.values(b"x-ratelimit-reset-requests") == [b"20s"]
        assert answer.values(b"x-should-retry") == [b"true"]


async def test_a_replay_that_keeps_a_pace_keeps_that_part_of_the_wait() -> None:
    manners = ProxyOptions(max_body=MIB, body_idle_s=10, pace=Pace(0.5))
    async with Peer(busy(b"Retry-After: 20")) as peer, stand(peer.url, manners=manners) as proxy:
        await proxy.ask()
        await proxy.broker.set_mode("replay")
        replayed = await proxy.ask()

    assert [replayed.values(name) for name in WAITS] == [[b"10"], [b"10000"]]


async def test_an_answer_that_asks_for_no_wait_gets_none() -> None:
    async with Peer(busy()) as peer, stand(peer.url) as proxy:
        await proxy.ask()
        await proxy.broker.set_mode("replay")
        replayed = await proxy.ask()

    assert replayed.outcome == b"replayed"
    assert [replayed.values(name) for name in WAITS] == [[], []]
