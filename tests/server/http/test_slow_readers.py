"""A client that takes nothing of its response is let go; one that is only slow gets all of it."""

import asyncio
import logging
import socket

import pytest

from tapeway.core.model.control import Mode
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.fakes.broker import until
from tests.support.socket_upstream import Peer, Step

SIZE = 8 * 2**20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE
OPTIONS = ProxyOptions(max_body=2 * SIZE, body_idle_s=10)
ANSWER: tuple[Step, ...] = (HEAD, b"x" * SIZE)


def connected(proxy: RunningProxy, *fields: bytes, room: int = 4096) -> socket.socket:
    """A client that has asked and reads nothing, with so much room in its own buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    client.connect(("127.0.0.1", proxy.port))
    client.sendall(proxy.request(b"GET /big", *fields))
    return client


@pytest.mark.parametrize("mode", ["auto", "passthrough"])
@pytest.mark.parametrize("fields", [(), (b"Connection: close",)], ids=["kept", "closed"])
async def test_a_client_that_takes_nothing_is_let_go(
    mode: Mode, fields: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        Peer(*ANSWER) as peer,
        running_proxy(peer.url, mode=mode, options=OPTIONS, send_s=0.1) as proxy,
    ):
        with connected(proxy, *fields):
            await until(lambda: "took nothing" in caplog.text)
            await until(lambda: not proxy.proxy.in_flight)


async def test_a_client_that_reads_slowly_gets_all_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Peer(*ANSWER) as peer, running_proxy(peer.url, options=OPTIONS, send_s=0.3) as proxy:
        with connected(proxy, room=2**18) as client:
            client.setblocking(False)
            loop, got = asyncio.get_running_loop(), 0
            while got < SIZE:
                got += len(await loop.sock_recv(client, 2**17))
                await asyncio.sleep(0.005)

    assert "took nothing" not in caplog.text
