"""An upstream that cannot show who it is gets no request."""

import ssl

import pytest

from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer, Step
from tests.upstream.certificate_authority import client, server


def secure(peer: Peer) -> str:
    return peer.url.replace("http:", "https:")


def plain(peer: Peer) -> str:
    return peer.url.replace("https:", "http:")


async def test_a_known_authority_vouches_for_an_upstream() -> None:
    async with Peer(tls=server("good")) as peer, running_proxy(peer.url, tls=client()) as proxy:
        answer = await proxy.ask(b"POST /", b"Authorization: Bearer key", body=b"{}")

        assert (answer.status, answer.body) == (200, b"ok")
        assert b"\r\nAuthorization: Bearer key\r\n" in peer.requests[0]


@pytest.mark.parametrize("kind", ["unknown authority", "another name", "expired"])
async def test_a_certificate_that_is_not_valid_is_refused(kind: str) -> None:
    async with Peer(tls=server(kind)) as peer, running_proxy(peer.url, tls=client()) as proxy:
        answer = await proxy.ask(b"POST /", b"Authorization: Bearer key", body=b"{}")

        assert answer.status == 502
        assert b'"code":"upstream_tls"' in answer.body
        assert b"--upstream-ca" in answer.body
        assert peer.requests == []
        assert await proxy.recorded() == []


async def test_without_being_told_no_authority_of_the_tests_is_known() -> None:
    async with Peer(tls=server("good")) as peer, running_proxy(peer.url) as proxy:
        assert b'"code":"upstream_tls"' in (await proxy.ask()).body
        assert peer.requests == []


@pytest.mark.parametrize("kind", ["unknown authority", "another name", "expired"])
async def test_checking_can_be_switched_off(kind: str) -> None:
    async with Peer(tls=server(kind)) as peer, running_proxy(peer.url, tls=False) as proxy:
        assert (await proxy.ask()).status == 200
        assert len(peer.requests) == 1


async def test_plain_http_behind_https_is_refused() -> None:
    said = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with (
        Peer(said, "close", unasked=True) as peer,
        running_proxy(secure(peer), tls=client()) as proxy,
    ):
        answer = await proxy.ask()

        assert answer.status == 502
        assert b'"code":"upstream_tls"' in answer.body


async def test_tls_behind_http_is_no_http() -> None:
    async with Peer(tls=server("good")) as peer, running_proxy(plain(peer)) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b'"code":"upstream_' in answer.body
        assert peer.requests == []


@pytest.mark.filterwarnings("ignore:.*TLSv1.*:DeprecationWarning")
async def test_an_outdated_version_of_tls_is_refused() -> None:
    old = server("good")
    # OpenSSL itself would not speak it otherwise.
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with Peer(tls=old) as peer, running_proxy(peer.url, tls=client()) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b'"code":"upstream_tls"' in answer.body
        assert peer.requests == []


@pytest.mark.parametrize("steps", [("close",), ("reset",), (b"garbage",)])
async def test_a_handshake_that_breaks_off_is_an_error(steps: tuple[Step, ...]) -> None:
    async with (
        Peer(*steps, unasked=True) as peer,
        running_proxy(secure(peer), tls=client()) as proxy,
    ):
        answer = await proxy.ask()

        assert answer.status == 502
        assert b'"code":"upstream_' in answer.body
