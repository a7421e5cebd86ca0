"""Whatever goes wrong, no secret of the request is on the page, in the journal or in a log line."""

import contextlib
import json
import logging
from urllib.parse import quote

import pytest

from tapeway.core.model.control import Mode
from tapeway.server.proxy import ProxyOptions
from tests.canary import canary, sightings
from tests.peer import Peer, Step
from tests.server.stand import MIB, Stand, stand, written_and_read

SHAPED = "sk-ant-api03-0123456789abcdefghijklmnop"
NOWHERE = "http://127.0.0.1:9"


class Told:
    """The secrets of one request, and all that was said about it."""

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
            f"Referer: https://h/?key={quote(own['query'], safe='')}",
            "Content-Type: application/json",
        ]
        return tuple([line.encode() for line in lines])

    def target(self, path: str = "/v1/x") -> str:
        """A target with a secret of a known shape, one of a parameter and one of the body."""
        query = quote(self.secrets["query"], safe="")
        again = quote(self.secrets["field"], safe="")
        return f"{path}/{SHAPED}/{quote(self.secrets['bearer'], safe='')}?key={query}&b={again}"

    def body(self) -> bytes:
        """JSON that names its secrets, with one named nowhere but in a header."""
        own = self.secrets
        tool = {"headers": {"Authorization": f"Bearer {own['tool']}"}}
        return json.dumps({"client_secret": own["field"], "tools": [tool]}).encode()

    def found(self, proxy: Stand, *pages: bytes) -> list[str]:
        """Where a secret is seen; the one of the body counts where the body was read."""
        records = "\n".join([str(vars(record)) for record in self._caplog.records])
        entries = "\n".join([repr(entry) for entry in proxy.journal])
        places = {f"page {number}": page for number, page in enumerate(pages)}
        places |= {"journal": entries.encode(), "log": (records + self._caplog.text).encode()}
        assert entries
        return sightings(self.secrets | {"shaped": SHAPED}, places)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


REFUSED: dict[str, tuple[bytes, tuple[bytes, ...]]] = {
    "no route": (b"POST", ()),
    "WebSocket": (b"GET", (b"Connection: upgrade", b"Upgrade: websocket")),
    "TRACE": (b"TRACE", ()),
    "expectation": (b"POST", (b"Expect: the-unexpected",)),
    "coding": (b"POST", (b"Transfer-Encoding: gzip, chunked",)),
    "cassette": (b"POST", (b"Tapeway-Cassette: no name",)),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_request_that_is_refused_is_told_nothing_of_its_secrets(
    case: str, told: Told
) -> None:
    method, fields = REFUSED[case]
    body = b"" if method != b"POST" or case == "coding" else told.body()
    # A refusal may come before the body is read, so what only the body names stands nowhere else.
    target = told.target().partition("&b=")[0].encode()
    async with stand() as proxy:
        answer = await proxy.ask(method + b" " + target, *told.fields(), *fields, body=body)

        assert answer.status >= 400
        assert told.found(proxy, repr(answer).encode(), answer.body) == []


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
async def test_an_upstream_in_trouble_makes_nobody_tell_a_secret(
    mode: Mode, steps: tuple[Step, ...], told: Told
) -> None:
    async with Peer(*steps) as peer, stand(peer.url, mode=mode) as proxy:
        target, page = told.target().encode(), b""
        async with proxy.connect() as client:
            sent = (*told.fields(), b"Connection: close")
            await client.send(proxy.request(b"POST " + target, *sent, body=told.body()))
            with contextlib.suppress(ConnectionError):
                page = await client.rest()

        assert sightings(told.secrets, {"upstream": b"".join(peer.requests)}) or not peer.requests
        assert told.found(proxy, page) == []


async def test_an_upstream_out_of_reach_makes_nobody_tell_a_secret(told: Told) -> None:
    async with stand(NOWHERE, mode="auto") as proxy:
        answer = await proxy.ask(
            b"POST " + told.target().encode(), *told.fields(), body=told.body()
        )

        assert answer.status == 502
        assert told.found(proxy, repr(answer).encode(), answer.body) == []


async def test_a_miss_and_what_is_near_it_tell_no_secret(told: Told) -> None:
    async with Peer() as peer, stand(peer.url) as proxy:
        near = told.body().replace(b"tools", b"other")
        await proxy.ask(b"POST " + told.target().encode(), *told.fields(), body=near)
        store = await written_and_read(proxy.store)
    async with stand(peer.url, mode="replay", store=store) as proxy:
        answer = await proxy.ask(
            b"POST " + told.target().encode(), *told.fields(), body=told.body()
        )

        assert answer.status == 424
        assert told.found(proxy, repr(answer).encode(), answer.body) == []


async def test_a_body_that_is_too_large_is_refused_without_a_word_of_it(told: Told) -> None:
    manners = ProxyOptions(max_body=100, body_idle_s=10)
    target = told.target().partition("&b=")[0].encode()
    async with stand(NOWHERE, manners=manners) as proxy:
        answer = await proxy.ask(b"POST " + target, *told.fields(), body=told.body() + b" " * MIB)

        assert answer.status == 413
        assert told.found(proxy, repr(answer).encode(), answer.body) == []
