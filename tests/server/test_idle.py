"""A connection on which nothing happens, or half a header, is closed."""

import pytest

from tapeway.server import protocol
from tests.peer import Peer
from tests.server.stand import stand


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n", b"\r\n", b"FOO"],
    ids=["nothing", "a letter", "half a line", "half a header", "an empty line", "a method"],
)
async def test_a_client_that_sends_no_whole_header_is_not_waited_for(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "KEEPALIVE_S", 0.05)
    async with Peer() as peer, stand(peer.url) as proxy, proxy.connect() as app:
        await app.send(sent)

        assert await app.rest() == b""
        assert peer.connections == 0


async def test_a_client_that_drips_its_header_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "KEEPALIVE_S", 0.05)
    async with Peer() as peer, stand(peer.url) as proxy, proxy.connect() as app:

        async def drip() -> None:
            while True:
                await app.send(b"x")

        with pytest.raises(ConnectionError):
            await drip()

        assert peer.connections == 0


async def test_a_connection_is_closed_some_time_after_its_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "KEEPALIVE_S", 0.05)
    async with Peer() as peer, stand(peer.url) as proxy, proxy.connect() as app:
        assert (await app.ask(proxy.request())).status == 200
        assert await app.rest() == b""
