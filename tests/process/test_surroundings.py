"""What surrounds `tapeway serve`: descriptors, certificates, proxies, its own listeners."""

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.process.serving import DEADLINE_S, Tapeway
from tests.support.ports import free_ports
from tests.support.reuse import reuse_all
from tests.support.socket_upstream import Peer
from tests.upstream.certificate_authority import AUTHORITY, server


@pytest.mark.parametrize("whose", ["--listen", "--admin-listen"])
async def test_an_own_listener_by_another_address_is_recognised_when_it_is_asked(
    whose: str, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    options = (whose, f"127.0.0.1:{port}", "--upstream", f"http://0.0.0.0:{port}")
    async with Tapeway(tmp_path, *options) as tapeway:
        answer = await tapeway.ask("/x")
        status = await tapeway.status()

    assert answer.status == 508
    assert status["upstream_connections"] == 0


def urlopen_status(url: str) -> int:
    """The status of the final response, as a common client sees it."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
async def test_processes_that_are_each_others_upstream_end_in_508(tmp_path: Path) -> None:
    ports = free_ports(2)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    options = [
        (
            "--listen",
            f"127.0.0.1:{own}",
            "--upstream",
            f"http://127.0.0.1:{other}",
            "--mode",
            "auto",
        )
        for own, other in (ports, reversed(ports))
    ]
    async with (
        asyncio.timeout(DEADLINE_S),
        Tapeway(tmp_path / "one", *options[0]) as one,
        Tapeway(tmp_path / "two", *options[1]) as two,
    ):
        for each in (one, two, one):
            answer = await asyncio.to_thread(urlopen_status, f"{each.proxy}/x")
            assert answer == 508


async def test_a_private_authority_can_be_named(tmp_path: Path) -> None:
    bundle = tmp_path / "authority.pem"
    AUTHORITY.cert_pem.write_to_path(bundle)
    async with Peer(tls=server("good")) as peer:
        async with Tapeway(tmp_path, "--upstream", peer.url) as tapeway:
            assert (await tapeway.ask("/x")).status == 502
        options = ("--upstream", peer.url, "--upstream-ca", str(bundle))
        async with Tapeway(tmp_path, *options) as tapeway:
            assert (await tapeway.ask("/x")).outcome == b"recorded"


async def test_an_authority_of_the_system_is_known_and_no_other(tmp_path: Path) -> None:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "system.pem"))
    environ = {"SSL_CERT_FILE": str(tmp_path / "system.pem"), "SSL_CERT_DIR": str(tmp_path)}
    async with (
        Peer(tls=server("good")) as peer,
        Peer(tls=server("unknown authority")) as stranger,
        Tapeway(
            tmp_path,
            *("--upstream", peer.url, "--route", f"stranger={stranger.url}"),
            environ=environ,
        ) as tapeway,
    ):
        answers = await asyncio.gather(*(tapeway.ask(f"/{number}") for number in range(4)))
        assert [answer.status for answer in answers] == [200] * 4
        refusal = await tapeway.ask("/stranger/1")
        assert refusal.status == 502
        assert b'"code":"upstream_tls"' in refusal.body
        assert stranger.requests == []


async def test_checking_certificates_is_only_switched_off_with_a_warning(tmp_path: Path) -> None:
    async with Peer(tls=server("expired")) as peer:
        options = ("--upstream", peer.url, "--insecure-upstream")
        async with Tapeway(tmp_path, *options) as tapeway:
            assert (await tapeway.ask("/x")).status == 200
            assert [line for line in tapeway.log if "insecure" in line["message"]]


@pytest.mark.parametrize("option", [(), ("--no-rewrite",)])
async def test_locations_are_rewritten_unless_told_otherwise(
    option: tuple[str, ...], tmp_path: Path
) -> None:
    reuse_all(tmp_path)
    async with Peer() as peer:
        head = f"HTTP/1.1 201 Created\r\nLocation: {peer.url}/jobs/1\r\nContent-Length: 0\r\n\r\n"
        peer.then(head.encode())
        async with Tapeway(tmp_path, "--upstream", peer.url, *option) as tapeway:
            answers = [await tapeway.ask("/jobs", b"{}") for _ in range(2)]

        expected = f"{peer.url}/jobs/1" if option else "http://app/jobs/1"
        assert [answer.outcome for answer in answers] == [b"recorded", b"replayed"]
        assert [answer.value(b"location").decode() for answer in answers] == [expected] * 2
