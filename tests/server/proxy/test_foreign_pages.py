"""Pages of strangers see nothing on the proxy listener and cause no call."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from websockets.exceptions import InvalidStatus

from tapeway.core.http.foreign import ForeignGuard
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import MIB, HitsOn, RunningProxy, running_proxy
from tests.server.websocket.conversing import connected
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer

SECRET = b"the acquisition closes on Friday"
HEAD = CassetteHead("2026-01-01T00:00:00+00:00", "run")
EVIL, HOME = b"Origin: https://evil.example", b"Origin: http://localhost:3000"
CROSS_SITE = b"Sec-Fetch-Site: cross-site"
PREFLIGHT = (
    b"Access-Control-Request-Method: POST",
    b"Access-Control-Request-Headers: content-type",
    b"Access-Control-Request-Private-Network: true",
)


def interaction(
    index: int, method: str, target: str, body: bytes = b"", status: int = 200
) -> Interaction:
    # A service that lets any page read what it answers.
    fields = ((b"Access-Control-Allow-Origin", b"*"), (b"Content-Type", b"text/plain"))
    head = ResponseHead(status, "OK", fields, "length", length=len(SECRET))
    request = Request("default", method, target, (), body)
    return Interaction(index, request, Response.of_chunks(head, [(SECRET, 0.0)]))


RECORDED = (
    interaction(0, "GET", "/hit"),
    interaction(1, "GET", "/part", status=206),
    interaction(2, "POST", "/ask", b"known prompt"),
    interaction(3, "OPTIONS", "/hit"),
    interaction(4, "GET", "/api/tags"),
)


@asynccontextmanager
async def proxied(
    *,
    mode: Mode = "auto",
    hits: HitsOn = "front",
    origins: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
) -> AsyncIterator[tuple[RunningProxy, Peer]]:
    """A proxy with recordings in front of a service."""
    store = MemoryStore()
    await store.save("default", StoredCassette(HEAD, RECORDED))
    guard = ForeignGuard.of_listener("127.0.0.1", hosts, origins)
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=10, guard=guard)
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode=mode, store=store, options=options, hits=hits) as proxy,
    ):
        await proxy.broker.prepare()
        yield proxy, peer


def code_of(answer: Answer) -> str:
    body = orjson.loads(answer.body)
    return str(body["error"]["code"])


def shows_nothing(answer: Answer) -> bool:
    """Whether an answer tells a page neither what is recorded nor that it may read the answer."""
    told = answer.head.lower() + answer.body
    return not any(word in told for word in (b"access-control", SECRET, b"cassette"))


REQUESTS: dict[str, tuple[bytes, bytes]] = {
    "a hit": (b"GET /hit", b""),
    "a part": (b"GET /part", b""),
    "a recorded prompt": (b"POST /ask", b"known prompt"),
    "a miss beside a recorded prompt": (b"POST /ask", b"unknown prompt"),
    "a new path": (b"GET /new", b""),
    "a head": (b"HEAD /hit", b""),
    "a recorded preflight": (b"OPTIONS /hit", b""),
    "a cassette by its path": (b"GET /@default/hit", b""),
    "a slot": (b"GET /@~slot/hit", b""),
    "a bad cassette": (b"GET /@../hit", b""),
    "a refused method": (b"TRACE /hit", b""),
    "any method": (b"PROPFIND /hit", b""),
    "a large body": (b"POST /ask", b"x" * 300_000),
}


@pytest.mark.parametrize("hits", ["front", "ordinary", "nowhere"])
@pytest.mark.parametrize("mode", ["auto", "replay", "record", "passthrough"])
async def test_a_foreign_page_is_refused_before_anything_is_asked_or_shown(
    mode: Mode, hits: HitsOn
) -> None:
    async with proxied(mode=mode, hits=hits) as (proxy, peer):
        for name, (line, body) in REQUESTS.items():
            for marks in ((EVIL,), (EVIL, *PREFLIGHT), (HOME, EVIL), (CROSS_SITE,)):
                async with proxy.connect() as client:
                    sent = proxy.request(line, *marks, body=body)
                    answer = await client.ask(sent, method=line.split()[0])

                assert answer.status == 403, name
                assert answer.outcome == b"error"
                # As a document in a tab it must not ask for an icon.
                assert b"default-src 'none'" in answer.value(b"content-security-policy")
                assert line.startswith(b"HEAD") or code_of(answer) == "foreign_origin"
                assert shows_nothing(answer), (name, answer)

        assert peer.connections == 0
        recorded = await proxy.recorded()
        assert len(recorded) == len(RECORDED)


@pytest.mark.parametrize("hits", ["front", "ordinary", "nowhere"])
@pytest.mark.parametrize("origin", [HOME, b"Origin: http://web:8000", b"Origin: http://[::1]"])
async def test_a_page_of_this_machine_or_of_a_container_reads_hits_misses_and_errors(
    origin: bytes, hits: HitsOn
) -> None:
    async with proxied(mode="replay", hits=hits) as (proxy, _):
        hit = await proxy.ask(b"GET /hit", origin, CROSS_SITE)
        miss = await proxy.ask(b"POST /ask", origin, CROSS_SITE, body=b"unknown prompt")
        error = await proxy.ask(b"GET /@../hit", origin)

    assert (hit.status, hit.body) == (200, SECRET)
    assert (hit.value(b"access-control-allow-origin")) == b"*"
    for answer, code in ((miss, "replay_miss"), (error, "bad_cassette_name")):
        assert code_of(answer) == code
        assert answer.value(b"access-control-allow-origin") == origin.removeprefix(b"Origin: ")


async def test_a_foreign_host_reaches_nothing() -> None:
    async with proxied() as (proxy, peer):
        for name, (line, body) in REQUESTS.items():
            sent = proxy.request(line, body=body).replace(proxy.host, b"evil.example:8080")
            async with proxy.connect() as client:
                answer = await client.ask(sent, method=line.split()[0])

            assert answer.status == 421, name
            assert line.startswith(b"HEAD") or code_of(answer) == "foreign_host"
            assert shows_nothing(answer), (name, answer)
        assert peer.connections == 0


async def test_a_name_in_the_absolute_form_counts_in_place_of_the_host() -> None:
    async with proxied() as (proxy, peer):
        line = b"GET http://%b/hit HTTP/1.1\r\nHost: %b\r\n\r\n"
        own = await proxy.send(line % (proxy.host, b"evil.example"))
        foreign = await proxy.send(line % (b"evil.example", proxy.host))
        page = await proxy.send(
            line.replace(b"\r\n\r\n", b"\r\n" + EVIL + b"\r\n\r\n") % ((proxy.host,) * 2)
        )

    assert (own.status, own.body) == (200, SECRET)
    assert (foreign.status, code_of(foreign)) == (421, "misdirected")
    assert (page.status, code_of(page)) == (403, "foreign_origin")
    assert peer.connections == 0


async def test_http_1_0_is_served_without_a_host_and_not_under_a_foreign_one() -> None:
    async with proxied() as (proxy, _):
        without = await proxy.send(b"GET /hit HTTP/1.0\r\n\r\n")
        foreign = await proxy.send(b"GET /hit HTTP/1.0\r\nHost: evil.example\r\n\r\n")

    assert without.body == SECRET
    assert (foreign.status, code_of(foreign)) == (421, "foreign_host")


async def test_a_connection_is_no_permission_for_the_next_request_on_it() -> None:
    async with proxied() as (proxy, _), proxy.connect() as client:
        statuses = [
            (await client.ask(proxy.request(b"GET /hit", *marks))).status
            for marks in ((), (EVIL,), (HOME,), (EVIL,), (CROSS_SITE,), ())
        ]

    assert statuses == [200, 403, 200, 403, 403, 200]


async def test_an_unread_body_of_a_foreign_page_becomes_no_request() -> None:
    async with proxied() as (proxy, peer), proxy.connect() as client:
        body = proxy.request(b"GET /new")
        head = proxy.request(b"POST /ask", EVIL, b"Expect: 100-continue", body=body)
        answer = await client.ask(head[: -len(body)])
        await client.send(body)
        rest = await client.rest()

    assert (answer.status, rest, peer.connections) == (403, b"", 0)


async def test_allowed_origins_and_hosts_are_served() -> None:
    async with proxied(origins=("https://app.example",), hosts=("tunnel.example",)) as (proxy, _):
        page = b"Origin: https://app.example"
        hit = await proxy.ask(b"GET /hit", page)
        sent = proxy.request(b"GET /hit").replace(proxy.host, b"tunnel.example")
        tunnelled = await proxy.send(sent)
        image = await proxy.ask(b"GET /hit", CROSS_SITE, b"Referer: https://app.example/")
        other = await proxy.ask(b"GET /hit", EVIL)

    assert [answer.status for answer in (hit, tunnelled, image, other)] == [200, 200, 200, 403]


@pytest.mark.parametrize("hits", ["front", "ordinary", "nowhere"])
@pytest.mark.parametrize("path", [b"/hit", b"/not-recorded"])
async def test_a_preflight_of_a_served_page_permits_the_way_to_this_machine(
    path: bytes, hits: HitsOn
) -> None:
    async with proxied(hits=hits) as (proxy, _):
        answers = [
            await proxy.ask(b"OPTIONS " + path, HOME, *PREFLIGHT),
            await proxy.ask(b"OPTIONS " + path, HOME, *PREFLIGHT),
            await proxy.ask(b"OPTIONS " + path, HOME, *PREFLIGHT[:2]),
        ]

    permission = b"access-control-allow-private-network"
    assert [answer.value(permission) for answer in answers] == [b"true", b"true", b""]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime?model=m", "/feed"])
@pytest.mark.parametrize("mode", ["auto", "replay", "record", "passthrough"])
async def test_an_upgrade_of_a_foreign_page_is_refused_before_anything_is_dialled(
    mode: Mode, path: str
) -> None:
    async with proxied(mode=mode) as (proxy, peer):
        for marks in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            with pytest.raises(InvalidStatus) as refused:
                async with connected(proxy.url, path, marks):
                    pass

            assert refused.value.response.status_code == 403
            assert b"foreign_origin" in (refused.value.response.body or b"")
        assert peer.connections == 0


async def test_ollamas_clients_read_the_refusal_in_their_own_form() -> None:
    async with running_proxy(routes={"ollama": "http://127.0.0.1:9"}, mode="replay") as proxy:
        answer = await proxy.ask(b"POST /api/chat", EVIL, body=b"{}")

    assert isinstance(orjson.loads(answer.body)["error"], str)


async def test_each_page_and_each_name_is_one_warning_with_the_option_that_serves_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxied() as (proxy, _):
        for _ in range(3):
            await proxy.ask(b"GET /hit", EVIL)
            await proxy.ask(b"GET /new", EVIL)
            await proxy.ask(b"GET /hit", b"Origin: null")
            await proxy.send(proxy.request(b"GET /").replace(proxy.host, b"evil.example"))

    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [
        "a request of a page of https://evil.example was refused (403 foreign_origin); "
        "--allow-origin https://evil.example serves it",
        "a request of a page without an origin was refused (403 foreign_origin); "
        "--allow-origin null serves it",
        "a request under the name evil.example was refused (421 foreign_host); "
        "--allow-host evil.example serves it",
    ]


async def test_the_journal_names_a_refusal_and_no_cassette_is_asked() -> None:
    async with proxied() as (proxy, _):
        await proxy.ask(b"GET /@other/hit?api_key=sk-abcdefghijklmnop", EVIL)

    [entry] = proxy.journal
    assert (entry.outcome, entry.status, entry.cassette) == ("error", 403, "default")
    assert entry.message is not None
    assert entry.message.startswith("foreign_origin: ")
    assert "sk-abc" not in entry.path
