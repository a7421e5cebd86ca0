"""The target reaches the upstream byte for byte: signatures cover it."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer
from tests.support.thoroughness import examples

TARGETS = (
    "/",
    "/%2f%7E",
    "/a%2Fb/%2e%2e/c",
    "/~tilde;param=1/;a",
    "//x",
    "///",
    "/a//b/",
    "/../etc/passwd",
    "/a/../b/./c",
    "/a/%2e%2E/b",
    "/?a+b%20&a=",
    "/?",
    "/??",
    "/a/?",
    "/a//?",
    "/a;b?",
    "/a;b=1;c?;d",
    "/.",
    "/a/.",
    "/a/..?x",
    "/a?b?c=d&&e",
    "/a?q=%",
    "/%zz%",
    "/a?x=http://evil/y",
    "/http://evil/",
    "/a:b@c",
    "/a,b;c=d!$&'()*",
    '/"quoted"',
    "/<a>|{b}^`\\c",
    "/[x]?y=[z]",
    "/%E4%BD%A0%F0%9F%98%80?%C3%A4=%ff",
    "/?a=1&a=2&A=3",
    "/v1beta/models/m:streamGenerateContent?alt=sse",
    "/a?" + "b=" + "c" * 8000,
)


def target_of(request: bytes) -> str:
    """What stands between method and version."""
    return request.partition(b"\r\n")[0].split(b" ")[1].decode()


async def test_a_target_arrives_as_it_was_written() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for target in TARGETS:
            await proxy.ask(b"GET " + target.encode())

        assert [target_of(request) for request in peer.requests] == [*TARGETS]


async def test_a_target_below_a_route_and_a_base_path_is_put_behind_it() -> None:
    async with Peer() as peer, running_proxy(routes={"svc": f"{peer.url}/base/v1"}) as proxy:
        for target in TARGETS:
            await proxy.ask(b"GET /@cass/svc" + target.encode())

        expected = ["/base/v1" + target for target in TARGETS]
        assert [target_of(request) for request in peer.requests] == expected


CHARACTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "#")
WRITTEN = st.text(CHARACTERS, max_size=40).map(lambda text: "/x" + text)


@settings(max_examples=examples(30))
@given(st.lists(WRITTEN, min_size=1, max_size=10))
def test_any_visible_target_arrives_as_it_was_written(targets: list[str]) -> None:
    async def ask_each() -> list[bytes]:
        async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
            for target in targets:
                await app.ask(proxy.request(b"GET " + target.encode()))
            return peer.requests

    assert [target_of(request) for request in asyncio.run(ask_each())] == targets


@pytest.mark.parametrize("cut", ["/a b", "/a\tb"])
async def test_white_space_in_a_target_is_malformed(cut: str) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.ask(b"GET " + cut.encode())).status == 400
        assert peer.connections == 0
