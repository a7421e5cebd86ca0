"""No secret of a request is on a page, in the journal, in a log line or in a recording, and nothing else is hidden."""

import contextlib
import json
import logging
from urllib.parse import quote

import pytest

from tapeway.core.model.control import Mode
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy, written_and_read
from tests.support.canary import canary, sightings
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer, Step

SHAPED = "sk-ant-api03-0123456789abcdefghijklmnop"
NOWHERE = "http://127.0.0.1:9"
LOGPROBS = (
    b'{"choices":[{"logprobs":{"content":[{"token":" Hello","logprob":-0.1,"bytes":[32,72],'
    b'"top_logprobs":[{"token":" Hi","logprob":-2.0}]}]}}],"max_tokens":5,"token_type":"bearer"}'
)
SIGV4 = (
    b"Authorization: AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/eu/bedrock/aws4_request, "
    b"SignedHeaders=content-type;host;x-amz-date, Signature=" + b"0" * 64
)


class SecretRequest:
    """A request full of secrets, and a search for them in whatever the proxy put out."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        names = ("bearer", "api key", "query", "cookie", "field", "tool", "again")
        self.secrets = {name: canary() for name in names}
        self._caplog = caplog
        caplog.set_level(logging.DEBUG)

    def fields(self) -> tuple[bytes, ...]:
        """Every field that carries a credential."""
        own = self.secrets
        lines = [
            f"Authorization: Bearer {own['bearer']}",
            f"x-api-key: {own['api key']}",
            f"Cookie: a=b; sid={own['cookie']}",
            f"Referer: https://h/?api_key={quote(own['query'], safe='')}",
            "Content-Type: application/json",
        ]
        return tuple([line.encode() for line in lines])

    def target(self, path: str = "/v1/x") -> str:
        """A target with a secret with a known pattern, one of a parameter and one of the body."""
        query = quote(self.secrets["query"], safe="")
        again = quote(self.secrets["field"], safe="")
        return f"{path}/{SHAPED}/{quote(self.secrets['bearer'], safe='')}?api_key={query}&b={again}"

    def body(self) -> bytes:
        """JSON that names its secrets, with one named nowhere but in a header."""
        own = self.secrets
        tool = {"headers": {"Authorization": f"Bearer {own['tool']}"}}
        return json.dumps({"client_secret": own["field"], "tools": [tool]}).encode()

    def found(self, proxy: RunningProxy, *pages: bytes) -> list[str]:
        """Where a secret is seen; the one of the body counts where the body was read."""
        records = "\n".join([str(vars(record)) for record in self._caplog.records])
        entries = "\n".join([repr(entry) for entry in proxy.journal])
        places = {f"page {number}": page for number, page in enumerate(pages)}
        places |= {"journal": entries.encode(), "log": (records + self._caplog.text).encode()}
        assert entries
        return sightings(self.secrets | {"shaped": SHAPED}, places)


@pytest.fixture
def secret_request(caplog: pytest.LogCaptureFixture) -> SecretRequest:
    return SecretRequest(caplog)


REFUSED: dict[str, tuple[bytes, tuple[bytes, ...]]] = {
    "no route": (b"POST", ()),
    "WebSocket": (b"GET", (b"Connection: upgrade", b"Upgrade: websocket")),
    "TRACE": (b"TRACE", ()),
    "expectation": (b"POST", (b"Expect: the-unexpected",)),
    "coding": (b"POST", (b"Transfer-Encoding: gzip, chunked",)),
    "cassette": (b"POST", (b"Tapeway-Cassette: no name",)),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_request_reveals_no_secret(
    case: str, secret_request: SecretRequest
) -> None:
    method, fields = REFUSED[case]
    body = b"" if method != b"POST" or case == "coding" else secret_request.body()
    # A refusal may come before the body is read, so what only the body names stands nowhere else.
    target = secret_request.target().partition("&b=")[0].encode()
    async with running_proxy() as proxy:
        answer = await proxy.ask(
            method + b" " + target, *secret_request.fields(), *fields, body=body
        )

        assert answer.status >= 400
        assert secret_request.found(proxy, repr(answer).encode(), answer.body) == []


@pytest.mark.parametrize("mode", ["record", "auto", "passthrough"])
@pytest.mark.parametrize(
    "steps",
    [
        ("reset",),
        ("close",),
        (b"no HTTP at all\r\n\r\n", "close"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "close"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 200_000, "close"),
    ],
    ids=["reset", "closed", "garbage", "cut", "oversize"],
)
async def test_a_failing_upstream_reveals_no_secret(
    mode: Mode, steps: tuple[Step, ...], secret_request: SecretRequest
) -> None:
    async with Peer(*steps) as peer, running_proxy(peer.url, mode=mode) as proxy:
        target, page = secret_request.target().encode(), b""
        async with proxy.connect() as client:
            sent = (*secret_request.fields(), b"Connection: close")
            await client.send(proxy.request(b"POST " + target, *sent, body=secret_request.body()))
            with contextlib.suppress(ConnectionError):
                page = await client.rest()

        assert (
            sightings(secret_request.secrets, {"upstream": b"".join(peer.requests)})
            or not peer.requests
        )
        assert secret_request.found(proxy, page) == []


async def test_an_unreachable_upstream_reveals_no_secret(
    secret_request: SecretRequest,
) -> None:
    async with running_proxy(NOWHERE, mode="auto", rules=REUSED) as proxy:
        answer = await proxy.ask(
            b"POST " + secret_request.target().encode(),
            *secret_request.fields(),
            body=secret_request.body(),
        )

        assert answer.status == 502
        assert secret_request.found(proxy, repr(answer).encode(), answer.body) == []


async def test_a_miss_and_its_nearest_recordings_reveal_no_secret(
    secret_request: SecretRequest,
) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        near = secret_request.body().replace(b"tools", b"other")
        await proxy.ask(
            b"POST " + secret_request.target().encode(), *secret_request.fields(), body=near
        )
        store = await written_and_read(proxy.store)
    async with running_proxy(peer.url, mode="replay", store=store) as proxy:
        answer = await proxy.ask(
            b"POST " + secret_request.target().encode(),
            *secret_request.fields(),
            body=secret_request.body(),
        )

        assert answer.status == 400
        assert secret_request.found(proxy, repr(answer).encode(), answer.body) == []


async def test_a_body_that_is_too_large_is_refused_without_quoting_it(
    secret_request: SecretRequest,
) -> None:
    options = ProxyOptions(max_body=100, body_idle_s=10)
    target = secret_request.target().partition("&b=")[0].encode()
    async with running_proxy(NOWHERE, options=options) as proxy:
        answer = await proxy.ask(
            b"POST " + target, *secret_request.fields(), body=secret_request.body() + b" " * MIB
        )

        assert answer.status == 413
        assert secret_request.found(proxy, repr(answer).encode(), answer.body) == []


def answer_of(body: bytes) -> bytes:
    """JSON under a length."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


BODIES = {
    "log-probabilities": (b"X: a", LOGPROBS),
    "names of signed fields": (SIGV4, b'{"headers":"content-type;host;x-amz-date","h":"host"}'),
    "a short key's letters": (b"Authorization: Bearer short", b'{"text":"in short, bearer"}'),
}


@pytest.mark.parametrize("name", BODIES)
async def test_an_answer_without_a_credential_is_replayed_byte_for_byte(name: str) -> None:
    field, body = BODIES[name]
    async with Peer(answer_of(body)) as peer, running_proxy(peer.url) as proxy:
        live = await proxy.ask(b"POST /v1", field, body=b"{}")
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy:
        replayed = await proxy.ask(b"POST /v1", field, body=b"{}")

    assert live.body == replayed.body == body


async def test_two_tokens_are_two_requests_and_another_key_is_not() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        for token in (b"first-page-token", b"second-page-token"):
            assert (await proxy.ask(b"GET /list?token=" + token)).outcome == b"recorded"
        assert (await proxy.ask(b"GET /list?token=first-page-token")).outcome == b"replayed"
        assert (await proxy.ask(b"GET /list?token=third-page-token")).outcome == b"recorded"

        assert (
            await proxy.ask(b"GET /one?api_key=the-key-it-was-recorded-with")
        ).outcome == b"recorded"
        await proxy.broker.rewind()
        assert (
            await proxy.ask(b"GET /one?api_key=some-other-key-than-that")
        ).outcome == b"replayed"
        await proxy.broker.set_mode("replay")
        assert (
            await proxy.ask(b"GET /one?api_key=yet-another-key-than-that")
        ).outcome == b"replayed"
        assert (await proxy.ask(b"GET /one")).outcome == b"replayed"
        assert (await proxy.ask(b"GET /list?token=second-page-token")).outcome == b"replayed"
        assert (await proxy.ask(b"GET /list?token=fourth-page-token")).outcome == b"miss"


async def test_the_page_after_one_without_a_token_is_asked_for() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        assert (await proxy.ask(b"GET /list")).outcome == b"recorded"
        assert (await proxy.ask(b"GET /list?token=second-page-token")).outcome == b"recorded"
        assert (await proxy.ask(b"GET /list")).outcome == b"replayed"
