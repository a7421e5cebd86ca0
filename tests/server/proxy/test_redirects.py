"""A redirect is an answer like any other; where it leads into the upstream, it leads through the proxy."""

import pytest

from tapeway.core.model.control import Mode
from tapeway.engine.recording.selection import Policy
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy, written_and_read
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

ALL = Policy(record_statuses=frozenset(range(200, 400)))
LITERAL = ProxyOptions(max_body=MIB, body_idle_s=5, rewrite=False)


def redirect(location: bytes, status: int = 302) -> bytes:
    return b"HTTP/1.1 %d Go\r\nLocation: %b\r\nContent-Length: 2\r\n\r\ngo" % (status, location)


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 201])
async def test_a_redirect_is_not_followed(status: int, mode: Mode) -> None:
    async with (
        Peer() as internal,
        Peer() as peer,
        running_proxy(peer.url, mode=mode, policy=ALL) as proxy,
    ):
        location = internal.url.encode() + b"/secret"
        peer.then(redirect(location, status))
        answer = await proxy.ask(b"POST /", body=b"{}")

        assert (answer.status, answer.body) == (status, b"go")
        assert answer.value(b"location") == location
        assert (internal.connections, len(peer.requests)) == (0, 1)


async def test_a_redirect_is_recorded_as_one() -> None:
    steps = redirect(b"http://169.254.169.254/")
    async with (
        Peer(steps) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, policy=ALL) as proxy,
    ):
        answers = [await proxy.ask() for _ in range(2)]

    assert [answer.outcome for answer in answers] == [b"recorded", b"replayed"]
    assert [answer.value(b"location") for answer in answers] == [b"http://169.254.169.254/"] * 2


# What the upstream says, {up} its address; what the client gets, {own} the proxy's.
INTO = {
    "{up}/v1/files/1?a=b%20c#d": "{own}/v1/files/1?a=b%20c#d",
    "{up}": "{own}/",
    "{up}/": "{own}/",
    "/relative": "/relative",
    "relative": "relative",
    "//elsewhere/x": "//elsewhere/x",
    "http://elsewhere/x": "http://elsewhere/x",
    "{up}.evil/x": "{up}.evil/x",
    "{up}1/x": "{up}1/x",
    "": "",
}


def filled(text: str, peer: Peer, proxy: RunningProxy) -> bytes:
    return text.format(up=peer.url, own=proxy.url).encode()


@pytest.mark.parametrize("status", [200, 201, 302])
@pytest.mark.parametrize("location", INTO)
async def test_a_location_into_the_upstream_points_to_the_proxy(location: str, status: int) -> None:
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, policy=ALL) as proxy,
    ):
        peer.then(redirect(filled(location, peer, proxy), status))
        answers = [await proxy.ask() for _ in range(3)]

        assert [answer.outcome for answer in answers] == [b"recorded", b"replayed", b"replayed"]
        expected = filled(INTO[location], peer, proxy)
        assert [answer.value(b"location") for answer in answers] == [expected] * 3


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("prefix", ["", "/@cass", "/svc", "/@cass/svc"])
async def test_a_location_is_given_in_the_terms_the_client_used(prefix: str, mode: Mode) -> None:
    async with Peer() as peer:
        base = f"{peer.url}/base"
        upstream = None if "svc" in prefix else base
        async with running_proxy(upstream, routes={"svc": base}, mode=mode, policy=ALL) as proxy:
            peer.then(redirect(f"{base}/jobs/7".encode()))
            answer = await proxy.ask(f"GET {prefix}/jobs".encode())

            assert answer.value(b"location") == f"{proxy.url}{prefix}/jobs/7".encode()


async def test_a_location_outside_the_routes_base_path_is_left_alone() -> None:
    async with Peer() as peer, running_proxy(f"{peer.url}/base", policy=ALL) as proxy:
        location = f"{peer.url}/other".encode()
        peer.then(redirect(location))

        assert (await proxy.ask()).value(b"location") == location


async def test_a_recorded_location_points_to_whichever_proxy_replays_it() -> None:
    async with Peer() as peer, running_proxy(peer.url, policy=ALL) as proxy:
        peer.then(redirect(f"{peer.url}/next".encode()))
        await proxy.ask()
        [recorded] = await proxy.recorded()
        assert (b"Location", f"{peer.url}/next".encode()) in recorded.response.headers
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as again:
        answer = await again.ask(b"GET /@default/")
        assert answer.value(b"location") == f"{again.url}/@default/next".encode()


async def test_the_proxy_is_called_what_the_client_called_it() -> None:
    async with Peer() as peer, running_proxy(peer.url, policy=ALL) as proxy:
        peer.then(redirect(f"{peer.url}/next".encode()))
        answer = await proxy.send(b"GET / HTTP/1.1\r\nHost: sidecar:9999\r\n\r\n")

        assert answer.value(b"location") == b"http://sidecar:9999/next"


async def test_a_client_that_names_no_host_gets_the_location_as_it_is() -> None:
    async with Peer() as peer, running_proxy(peer.url, policy=ALL) as proxy:
        peer.then(redirect(f"{peer.url}/next".encode()))
        answer = await proxy.send(b"GET / HTTP/1.0\r\n\r\n")

        assert answer.value(b"location") == f"{peer.url}/next".encode()


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_rewriting_can_be_turned_off(mode: Mode) -> None:
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode=mode, policy=ALL, options=LITERAL) as proxy,
    ):
        location = f"{peer.url}/next".encode()
        peer.then(redirect(location))

        assert (await proxy.ask()).value(b"location") == location
