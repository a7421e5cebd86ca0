"""A request that fails leaves nothing behind that only the collector of cycles would free."""

import asyncio

import pytest

from tapeway.engine.recording.selection import Policy
from tapeway.errors import AdminError, StoreFull
from tapeway.server.front import Front
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy
from tests.support.fakes.broker import until
from tests.support.fakes.failing_store import FakeStore
from tests.support.leftovers import no_collector, unnamed_files
from tests.support.socket_upstream import Peer, Step
from tests.support.thoroughness import step

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
BEGUN = HEAD % (3 * MIB) + b"x" * MIB * 2


WAYS: dict[str, tuple[tuple[Step, ...], int]] = {
    "whole": ((HEAD % 2 + b"ok",), 200),
    "large": ((BEGUN, b"x" * MIB), 200),
    "cut": ((BEGUN, "cut"), 502),
    "reset": ((BEGUN, "reset"), 502),
    "no HTTP": ((b"HTP/1.1 nonsense\r\n\r\n",), 502),
    "bad status": ((b"HTTP/1.1 999 x\r\n\r\n",), 502),
    "closed": (("close",), 502),
    "too large": ((HEAD % (5 * MIB),), 502),
}


@pytest.mark.parametrize("way", [*WAYS][:: step(2)])
async def test_whatever_the_upstream_does(way: str) -> None:
    steps, status = WAYS[way]
    async with Peer(*steps) as upstream:
        with no_collector() as garbage:
            async with running_proxy(upstream.url, policy=Policy(max_body=4 * MIB)) as proxy:
                assert {(await proxy.ask(b"GET /%d" % number)).status for number in (1, 2)} == {
                    status
                }
                left = garbage()

    assert left == set()


@pytest.mark.parametrize("way", ["whole", "large", "cut", "closed"])
async def test_what_is_only_passed_on(way: str) -> None:
    async with Peer(*WAYS[way][0]) as upstream:
        with no_collector() as garbage:
            async with running_proxy(upstream.url, mode="passthrough") as proxy:
                for number in (1, 2):
                    await proxy.ask(b"GET /%d" % number)
                left = garbage()

    assert left == set()


async def test_a_store_that_is_full() -> None:
    store = FakeStore()
    async with Peer(*WAYS["large"][0]) as upstream:
        with no_collector() as garbage:
            async with running_proxy(upstream.url, store=store) as proxy:
                store.fail("append", StoreFull("disk is full"))
                assert (await proxy.ask(b"GET /1")).status == 507
                left = garbage()

    assert left == set()


async def test_a_request_that_is_refused_before_its_end() -> None:
    with no_collector() as garbage:
        async with running_proxy("http://127.0.0.1:1") as proxy:
            async with proxy.connect() as client:
                line = proxy.request(b"POST /1", b"Content-Length: %d" % (64 * MIB))
                assert (await client.ask(line)).status == 413
                end = ended(proxy.connections()[0], proxy)
            await end
            left = garbage()

    assert left == set()


async def test_a_client_that_leaves_while_it_sends_a_large_body() -> None:
    before = unnamed_files()
    with no_collector() as garbage:
        async with running_proxy("http://127.0.0.1:1") as proxy:
            async with proxy.connect() as client:
                line = proxy.request(b"POST /1", b"Content-Length: %d" % (6 * MIB))
                await client.send(line + b"x" * (3 * MIB))
                await until(lambda: unnamed_files() != before)
                end = ended(proxy.connections()[0], proxy)
            await end
            left = garbage()

    assert left == set()
    assert unnamed_files() == before


async def ended(connection: Front, proxy: RunningProxy) -> None:
    """Wait until a connection is lost, and nobody handles its requests any more."""
    lost = connection.lost
    del connection
    await asyncio.wait((lost,))
    await until(lambda: not proxy.proxy.in_flight)
    # Whoever handled it ends a turn or two later.
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_change_of_a_cassette_that_fails() -> None:
    with no_collector() as garbage:
        async with running_proxy("http://127.0.0.1:1") as proxy:
            await proxy.broker.insert("x")
            await proxy.broker.eject("x")
            with pytest.raises(AdminError):
                await proxy.broker.eject("x")
            left = garbage()

    assert left == set()
