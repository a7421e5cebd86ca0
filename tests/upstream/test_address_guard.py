"""Where the names and addresses of upstreams may lead."""

from ipaddress import ip_network

import pytest
from aiohttp.abc import ResolveResult

from tapeway.errors import UpstreamError
from tapeway.upstream.address_guard import AddressGuard
from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer
from tests.upstream.name_service import Names

INTERNAL = (
    *("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"),
    *("169.254.169.254", "fe80::1", "::ffff:169.254.169.254"),
    *("0.0.0.0", "::", "224.0.0.1", "ff02::1"),
)
PRIVATE = ("10.0.0.5", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.5")


def unasked() -> AddressGuard:
    """A guard that looks no name up and allows every address that is not its own."""
    everywhere = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    return AddressGuard(frozenset(), everywhere, Names("192.0.2.1"))


@pytest.mark.parametrize("address", INTERNAL)
async def test_a_name_that_leads_inside_is_not_connected_to(address: str) -> None:
    guard = AddressGuard(frozenset(), (), Names(address))
    async with running_proxy("http://api.example", guard=guard) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b'"code":"upstream_address"' in answer.body
        assert b"--allow-address" in answer.body
        assert await proxy.recorded() == []


@pytest.mark.parametrize("address", PRIVATE)
async def test_a_public_providers_name_does_not_lead_to_a_private_address(address: str) -> None:
    guard = AddressGuard(frozenset({"api.example"}), (), Names(address))
    async with running_proxy("http://api.example", guard=guard) as proxy:
        assert b'"code":"upstream_address"' in (await proxy.ask()).body


async def test_one_bad_address_among_good_ones_is_enough() -> None:
    guard = AddressGuard(frozenset(), (), Names(["93.184.216.34", "127.0.0.1"]))
    async with running_proxy("http://api.example", guard=guard) as proxy:
        assert b'"code":"upstream_address"' in (await proxy.ask()).body


@pytest.mark.parametrize("address", PRIVATE)
def test_any_other_name_may_lead_to_a_private_address(address: str) -> None:
    AddressGuard(frozenset(), (), Names(address)).check("service.internal", address, 80)


@pytest.mark.parametrize("address", [*INTERNAL, *PRIVATE])
def test_an_address_somebody_wrote_down_is_meant(address: str) -> None:
    AddressGuard(frozenset({address}), (), Names(address)).check(address, address, 80)


async def test_an_allowed_address_is_connected_to() -> None:
    async with Peer() as peer:
        guard = AddressGuard(
            frozenset({"api.example"}), [ip_network("127.0.0.0/8")], Names("127.0.0.1")
        )
        async with running_proxy(f"http://api.example:{peer.port}", guard=guard) as proxy:
            assert (await proxy.ask()).status == 200
            assert b"\r\nHost: api.example:%d\r\n" % peer.port in peer.requests[0]


async def test_only_the_address_that_was_checked_is_connected_to() -> None:
    async with Peer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok") as peer:
        # A second look-up would lead to where nobody may go.
        names = Names("127.0.0.1", "169.254.169.254")
        guard = AddressGuard(frozenset(), [ip_network("127.0.0.1/32")], names)
        async with running_proxy(f"http://api.example:{peer.port}", guard=guard) as proxy:
            answers = [await proxy.ask(b"GET /%d" % number) for number in range(3)]

        assert [answer.status for answer in answers] == [200, 200, 200]
        assert peer.connections == 3
        assert names.asked == ["api.example"]


async def test_an_answer_that_changes_later_is_checked_again() -> None:
    guard = AddressGuard(frozenset(), [ip_network("127.0.0.1/32")], Names("127.0.0.1", "::1"))

    assert await guard.resolve("api.example", 80)
    with pytest.raises(UpstreamError, match="loopback"):
        await guard.resolve("api.example", 80)


async def test_a_name_that_cannot_be_looked_up_is_said_to_be_one() -> None:
    class Nowhere(Names):
        async def resolve(self, *_: object, **__: object) -> list[ResolveResult]:
            raise OSError("no such name")

    guard = AddressGuard(frozenset(), (), Nowhere("127.0.0.1"))
    async with running_proxy("http://nowhere.example", guard=guard) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b'"code":"upstream_dns"' in answer.body
        assert b"check the URL and the network" in answer.body


# The proxy itself.

OWN = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("127.0.0.1", "0.0.0.0"),
    ("::1", "::1"),
    ("::1", "::"),
    ("0.0.0.0", "127.0.0.1"),
    ("0.0.0.0", "127.9.9.9"),
    ("0.0.0.0", "0.0.0.0"),
    ("::", "127.0.0.1"),
    ("::", "::1"),
]


@pytest.mark.parametrize(("bound", "target"), OWN)
def test_an_own_listener_is_recognised_by_whatever_address(bound: str, target: str) -> None:
    guard = unasked()
    guard.own = frozenset({(bound, 8080)})

    for host in (target, "some.example", "localhost"):
        with pytest.raises(UpstreamError) as caught:
            guard.check(host, target, 8080)
        assert (caught.value.status, caught.value.code) == (508, "upstream_loop")
    guard.check(target, target, 8081)


@pytest.mark.parametrize(
    ("bound", "target"), [("127.0.0.1", "127.0.0.2"), ("0.0.0.0", "192.0.2.1"), ("::1", "::2")]
)
def test_another_machine_is_not_taken_for_this_one(bound: str, target: str) -> None:
    guard = unasked()
    guard.own = frozenset({(bound, 8080)})

    guard.check(target, target, 8080)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_a_request_that_would_go_round_in_circles_is_refused(host: str) -> None:
    async with running_proxy(f"http://{host}:{{own}}") as proxy:
        answer = await proxy.ask()

        assert answer.status == 508
        assert b'"code":"upstream_loop"' in answer.body
        assert len(proxy.journal) == 1
