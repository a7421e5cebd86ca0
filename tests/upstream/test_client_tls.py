"""An upstream that cannot show who it is gets no request."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from tapeway.core.model.control import Delivery, Mode
from tapeway.engine.recording.selection import Policy
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import running_proxy
from tests.support.serving_thread import serving
from tests.support.socket_upstream import Peer, Step
from tests.upstream.certificate_authority import AUTHORITY, STRANGER, client, server


def secure(peer: Peer) -> str:
    return peer.url.replace("http:", "https:")


def plain(peer: Peer) -> str:
    return peer.url.replace("https:", "http:")


async def test_a_known_authority_vouches_for_an_upstream() -> None:
    async with Peer(tls=server("good")) as peer, running_proxy(peer.url, tls=client()) as proxy:
        answer = await proxy.ask(b"POST /", b"Authorization: Bearer key", body=b"{}")

        assert (answer.status, answer.body) == (200, b"ok")
        assert b"\r\nAuthorization: Bearer key\r\n" in peer.requests[0]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("unknown authority", b"is of an authority that is not known"),
        ("another name", b"is for another name than 127.0.0.1"),
        ("expired", b"has expired"),
    ],
)
async def test_a_certificate_that_is_not_valid_is_refused(kind: str, why: bytes) -> None:
    async with Peer(tls=server(kind)) as peer, running_proxy(peer.url, tls=client()) as proxy:
        answer = await proxy.ask(b"POST /", b"Authorization: Bearer key", body=b"{}")

        assert answer.status == 502
        assert b'"code":"upstream_tls"' in answer.body
        assert b"has a certificate that tapeway refuses: it " + why in answer.body
        assert b"--upstream-ca" in answer.body
        assert peer.requests == []
        assert await proxy.recorded() == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_an_upstream_that_wants_a_client_certificate_gets_it_on_its_routes_alone(
    version: ssl.TLSVersion,
) -> None:
    with demanding(version) as url:
        names = ("shown", "strange", "other")
        certificates = {"shown": showing(AUTHORITY), "strange": showing(STRANGER)}
        async with running_proxy(
            routes=dict.fromkeys(names, url), tls=client(), certificates=certificates
        ) as proxy:
            for _ in range(2):
                assert (await proxy.ask(b"GET /shown/1")).status == 200
                for target, said in (
                    (b"GET /other/2", b"--upstream-cert"),
                    (b"GET /strange/2", b"does not know its issuer"),
                ):
                    answer = await proxy.ask(target)
                    assert answer.status == 502
                    assert b'"code":"upstream_tls"' in answer.body
                    assert said in answer.body


@contextmanager
def demanding(version: ssl.TLSVersion) -> Iterator[str]:
    """An upstream that wants a client certificate. A server of asyncio would refuse without a word."""
    theirs = server("good")
    theirs.maximum_version = version
    AUTHORITY.configure_trust(theirs)
    theirs.verify_mode = ssl.CERT_REQUIRED
    demanding = ThreadingHTTPServer(("127.0.0.1", 0), Greeting)
    demanding.socket = theirs.wrap_socket(demanding.socket, server_side=True)
    with serving(demanding):
        yield f"https://127.0.0.1:{demanding.server_port}"


class Greeting(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


async def test_a_client_certificate_may_be_for_every_route() -> None:
    theirs = server("good")
    AUTHORITY.configure_trust(theirs)
    theirs.verify_mode = ssl.CERT_REQUIRED
    async with (
        Peer(tls=theirs) as peer,
        running_proxy(peer.url, certificates={"": showing(AUTHORITY)}) as proxy,
    ):
        assert (await proxy.ask()).status == 200


def showing(issuer: trustme.CA) -> ssl.SSLContext:
    """A client's side of TLS with a certificate of this authority."""
    context = client()
    issuer.issue_cert("client@example.com").configure_cert(context)
    return context


async def test_without_being_told_no_authority_of_the_tests_is_known() -> None:
    async with Peer(tls=server("good")) as peer, running_proxy(peer.url) as proxy:
        assert b'"code":"upstream_tls"' in (await proxy.ask()).body
        assert peer.requests == []


async def test_the_system_s_authorities_are_read_once_when_the_first_connection_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    read: list[ssl.SSLContext] = []
    read_them = ssl.SSLContext.load_default_certs

    def noted(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        read.append(context)
        read_them(context, purpose)

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", noted)
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.ask()).status == 200
    assert read == []
    async with Peer(tls=server("good")) as peer, running_proxy(peer.url) as proxy:
        asked = await asyncio.gather(*(proxy.ask(b"GET /%d" % number) for number in range(8)))

        assert [answer.status for answer in asked] == [200] * 8
        assert len(read) == 1


@pytest.mark.parametrize("kind", ["unknown authority", "another name", "expired"])
async def test_checking_can_be_switched_off(kind: str) -> None:
    async with Peer(tls=server(kind)) as peer, running_proxy(peer.url, tls=False) as proxy:
        assert (await proxy.ask()).status == 200
        assert len(peer.requests) == 1


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


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (("close",), b"upstream_"),
        (("reset",), b"upstream_"),
        ((b"garbage",), b"upstream_"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "close"), b"upstream_tls"),
    ],
    ids=["closed", "reset", "garbage", "plain HTTP"],
)
async def test_a_handshake_that_fails_is_an_error(steps: tuple[Step, ...], code: bytes) -> None:
    async with (
        Peer(*steps, unasked=True) as peer,
        running_proxy(secure(peer), tls=client()) as proxy,
    ):
        answer = await proxy.ask()

        assert answer.status == 502
        assert b'"code":"' + code in answer.body


CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EVENT = b'data: {"a":1}\n\n'
DONE = b"data: [DONE]\n\n"
FAILED = b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n'
CHAT = b"POST /v1/chat/completions"

UNPROVEN: dict[str, tuple[Step, ...]] = {
    "nothing": (CLOSED,),
    "a text": (CLOSED, b"hello"),
    "a JSON document": (CLOSED, b'{"whole":true}'),
    "a stream without its mark": (EVENTS, EVENT),
    "a stream with half its mark": (EVENTS, EVENT, DONE[:9]),
}


@pytest.mark.parametrize("mode", ["record", "auto"])
@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("body", UNPROVEN)
async def test_a_body_that_only_a_cut_connection_ends_is_an_error_and_not_stored(
    body: str, delivery: Delivery, mode: Mode
) -> None:
    options = ProxyOptions(max_body=2**20, body_idle_s=10, delivery=delivery)
    async with (
        Peer(*UNPROVEN[body], "cut", tls=server("good")) as peer,
        running_proxy(peer.url, tls=client(), mode=mode, options=options) as proxy,
    ):
        answer = await proxy.ask(CHAT)

        assert await proxy.recorded() == []
        [entry] = proxy.journal
        assert (entry.outcome, entry.status) == ("error", 502)
        assert "upstream_truncated" in (entry.message or "")
        assert "close_notify" in (entry.message or "")
        assert answer.status == 502 if delivery == "buffer" else not answer.complete
        peer.then(*UNPROVEN[body], "close")
        if body in ("nothing", "a text", "a JSON document"):
            assert (await proxy.ask(CHAT)).outcome == b"recorded"


@pytest.mark.parametrize("mode", ["record", "auto", "passthrough"])
@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_stream_s_own_mark_shows_that_it_is_whole(delivery: Delivery, mode: Mode) -> None:
    options = ProxyOptions(max_body=2**20, body_idle_s=10, delivery=delivery)
    async with (
        Peer(EVENTS, EVENT + DONE[:7], DONE[7:], "cut", tls=server("good")) as peer,
        running_proxy(peer.url, tls=client(), mode=mode, options=options) as proxy,
    ):
        answer = await proxy.ask(CHAT)

        assert (answer.body, answer.complete) == (EVENT + DONE, True)
        verdicts = [exchange.response.verdict for exchange in await proxy.recorded()]
        assert verdicts == ([] if mode == "passthrough" else ["marked"])


async def test_an_error_that_a_stream_reports_ends_it_too() -> None:
    async with (
        Peer(EVENTS, FAILED, "cut", tls=server("good")) as peer,
        running_proxy(peer.url, tls=client()) as proxy,
    ):
        assert (await proxy.ask(CHAT)).body == FAILED
        [recorded] = await proxy.recorded()
        assert recorded.response.verdict == "error"


@pytest.mark.parametrize("end", ["close", "cut"])
async def test_a_body_passed_on_ends_as_its_connection_did(end: str) -> None:
    last: Step = "close" if end == "close" else "cut"
    async with (
        Peer(CLOSED, b"hello", last, tls=server("good")) as peer,
        running_proxy(peer.url, tls=client(), mode="passthrough") as proxy,
    ):
        answer = await proxy.ask()

        assert (answer.body, answer.complete) == (b"hello", end == "close")


@pytest.mark.parametrize("end", ["close", "cut"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_framed_body_needs_no_closing_message(framing: str, end: str) -> None:
    last: Step = "close" if end == "close" else "cut"
    body = {
        "length": b"Content-Length: 5\r\n\r\nhello",
        "chunked": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    }[framing]
    async with (
        Peer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + body, last, tls=server("good")) as peer,
        running_proxy(peer.url, tls=client()) as proxy,
    ):
        assert (await proxy.ask()).body == b"hello"
        assert len(await proxy.recorded()) == 1


async def test_what_a_cut_connection_ended_is_recorded_as_a_failure_where_failures_are() -> None:
    policy = Policy(record_failures=True)
    async with (
        Peer(CLOSED, b"hello", "cut", tls=server("good")) as peer,
        running_proxy(peer.url, tls=client(), policy=policy) as proxy,
    ):
        assert (await proxy.ask()).status == 502
        [recorded] = await proxy.recorded()
        assert recorded.failure is not None
        assert (recorded.failure.kind, recorded.response.body) == ("cut", b"hello")
