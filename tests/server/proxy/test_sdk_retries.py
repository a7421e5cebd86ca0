"""Each attempt of a retried call has its own recording, and a replay asks for no wait."""

import pytest

from tapeway.core.streams.pacing import Pace
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy
from tests.support.reuse import REUSED
from tests.support.socket_upstream import OK, Peer

BUSY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy"
WAITS = (b"Retry-After", b"retry-after-ms")


async def tries(
    proxy: RunningProxy, count: int, body: bytes = b"{}"
) -> list[tuple[bytes | None, int]]:
    """Outcome and status of each try of one call, made as the OpenAI SDK makes them."""
    answers = [
        await proxy.ask(
            b"POST /v1/x",
            b"Content-Type: application/json",
            b"x-stainless-retry-count: %d" % at,
            body=body,
        )
        for at in range(count)
    ]
    return [(answer.outcome, answer.status) for answer in answers]


async def counts(proxy: RunningProxy) -> tuple[int, int, int, int, int]:
    (report,) = await proxy.broker.reports()
    missed = len(report.misses)
    return (report.replayed, report.recorded, report.live, missed, report.retries)


async def test_what_a_retry_was_given_when_recording_it_is_given_again() -> None:
    async with Peer().then(BUSY) as peer, running_proxy(peer.url) as proxy:
        assert await tries(proxy, 2) == [(b"recorded", 429), (b"recorded", 200)]
        assert await counts(proxy) == (0, 1, 0, 0, 1)
        await proxy.broker.set_mode("replay")
        assert await tries(proxy, 2) == [(b"replayed", 429), (b"replayed", 200)]

        assert await counts(proxy) == (1, 1, 0, 0, 2)
        assert [entry.attempt for entry in proxy.journal] == [2, 1, 2, 1]
        assert len(await proxy.recorded()) == 2


async def test_a_retry_of_what_was_recorded_once_gets_that_again() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await tries(proxy, 1)
        await proxy.broker.set_mode("replay")

        assert await tries(proxy, 3) == 3 * [(b"replayed", 200)]
        assert await counts(proxy) == (1, 1, 0, 0, 2)


async def test_in_auto_a_retry_is_recorded_in_place_of_what_was_only_passed_on() -> None:
    async with (
        Peer().then(BUSY).then(BUSY) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        assert await tries(proxy, 3) == [(b"live", 429), (b"live", 429), (b"recorded", 200)]
        assert await counts(proxy) == (0, 1, 0, 0, 2)


async def test_a_miss_that_is_asked_for_again_is_listed_once() -> None:
    async with running_proxy("http://127.0.0.1:9", mode="replay") as proxy:
        await tries(proxy, 3, b'{"a":1}')
        await tries(proxy, 2, b'{"a":2}')

        assert await counts(proxy) == (0, 0, 0, 2, 3)
        assert len(list(proxy.journal)) == 5


async def test_an_upstream_that_failed_at_first_is_one_call() -> None:
    async with Peer(OK).then("reset") as peer, running_proxy(peer.url) as proxy:
        assert await tries(proxy, 2) == [(b"error", 502), (b"recorded", 200)]
        assert await counts(proxy) == (0, 1, 0, 0, 1)


async def test_an_unnumbered_first_attempt_belongs_to_the_call() -> None:
    async with (
        Peer().then(BUSY).then(BUSY) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        for fields in ([], [b"x-stainless-retry-count: 1"], [b"x-stainless-retry-count: 2"]):
            await proxy.ask(b"POST /v1/x", *fields, body=b"{}")

        assert await counts(proxy) == (0, 1, 0, 0, 2)
        assert [entry.attempt for entry in proxy.journal] == [3, 2, None]


async def test_attempts_of_an_aws_sdk_are_told_from_other_calls() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        for at in (1, 2):
            await proxy.ask(b"GET /v1/x", b"amz-sdk-request: attempt=%d; max=3" % at)
        await proxy.ask(b"GET /v1/x")

        assert await counts(proxy) == (1 + 1, 0, 0, 0, 1)
        assert [entry.attempt for entry in proxy.journal] == [None, 2, 1]


def busy(*fields: bytes, status: bytes = b"429 Too Many Requests") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: 4", *fields, b"", b"busy"]
    return b"\r\n".join(lines)


@pytest.mark.parametrize("more", [(), (b"Location: /elsewhere",)], ids=["plain", "located"])
async def test_the_wait_is_live_and_in_the_cassette_and_not_in_the_replay(
    more: tuple[bytes, ...],
) -> None:
    said = (b"Retry-After: 20", b"x-ratelimit-reset-requests: 20s", b"x-should-retry: true", *more)
    async with Peer(busy(*said)) as peer, running_proxy(peer.url) as proxy:
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
    options = ProxyOptions(max_body=MIB, body_idle_s=10, pace=Pace(0.5))
    async with (
        Peer(busy(b"Retry-After: 20")) as peer,
        running_proxy(peer.url, options=options) as proxy,
    ):
        await proxy.ask()
        await proxy.broker.set_mode("replay")
        replayed = await proxy.ask()

    assert [replayed.values(name) for name in WAITS] == [[b"10"], [b"10000"]]
