"""Pages on other origins can read a miss and an error, and their preflights are answered."""

import asyncio
from typing import get_args

import orjson
import pytest

from tapeway.core.http.cors import is_preflight, preflight_response, readable_by_page
from tapeway.core.model.control import Delivery
from tapeway.core.model.messages import Headers
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.fakes.broker import until
from tests.support.raw_client import Answer
from tests.support.reuse import REUSED
from tests.support.socket_upstream import OK, Peer

PAGE = b"http://localhost:5173"
ORIGIN = b"Origin: " + PAGE
PREFLIGHT = (
    ORIGIN,
    b"Access-Control-Request-Method: PUT",
    b"Access-Control-Request-Headers: authorization,content-type",
)


def readable(answer: Answer) -> bool:
    """Whether a browser shows this answer, and who made it, to the script of the page."""
    exposed = answer.value(b"access-control-expose-headers").lower().split(b", ")
    own = {b"tapeway-outcome", b"tapeway-cassette", b"x-request-id", b"request-id"}
    return answer.value(b"access-control-allow-origin") == PAGE and own <= set(exposed)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"POST /v1/chat/completions", "replay_miss"),
        (b"GET /@../x", "bad_cassette_name"),
        (b"GET /@~unset/v1/models", "no_slot"),
        (b"TRACE /", "method_not_allowed"),
    ],
)
async def test_a_page_can_read_a_miss_and_an_error(line: bytes, code: str) -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="replay") as proxy:
        answer = await proxy.ask(line, ORIGIN)

        assert orjson.loads(answer.body)["error"]["code"] == code
        assert readable(answer)
        assert answer.value(b"vary") == b"Origin"


async def test_a_page_can_read_why_the_upstream_failed() -> None:
    async with Peer("close") as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask(b"GET /", ORIGIN)

        assert orjson.loads(answer.body)["error"]["code"] == "upstream_reset"
        assert readable(answer)


async def test_a_client_without_an_origin_gets_no_permission() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="replay") as proxy:
        answer = await proxy.ask()

        assert b"access-control" not in answer.head.lower()


async def test_the_reason_phrase_of_a_miss_begins_its_message() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="replay") as proxy:
        answer = await proxy.ask(b"GET /" + b"long" * 60)

        assert answer.status == 400
        assert answer.reason.startswith(b"Replay miss: GET /long")
        assert len(answer.reason) == 120


def permission(answer: Answer) -> dict[str, bytes]:
    """What a browser may do after this answer."""
    return {
        name: answer.value(b"access-control-allow-" + name.encode())
        for name in ("origin", "methods", "headers")
    }


GRANTED = {"origin": PAGE, "methods": b"PUT", "headers": b"authorization,content-type"}


async def outcomes(proxy: RunningProxy) -> list[tuple[str, int]]:
    """How the journal says that requests ended."""
    return [(answer.outcome, answer.status) for answer in proxy.journal]


async def test_a_preflight_that_no_recording_answers_is_permitted_and_is_no_miss() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="replay") as proxy:
        answer = await proxy.ask(b"OPTIONS /v1/chat/completions", *PREFLIGHT)

        assert (answer.status, permission(answer)) == (204, GRANTED)
        assert await outcomes(proxy) == [("replayed", 204)]
        assert peer.connections == 0


async def test_a_preflight_that_has_no_route_is_permitted_so_that_the_page_reads_the_error() -> (
    None
):
    async with running_proxy(mode="replay", routes={"a": "http://127.0.0.1:9"}) as proxy:
        answer = await proxy.ask(b"OPTIONS /nowhere", *PREFLIGHT)

        assert (answer.status, permission(answer)) == (204, GRANTED)
        assert await outcomes(proxy) == [("error", 204)]


async def test_a_recorded_preflight_is_replayed() -> None:
    async with Peer(OK) as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        answers = [await proxy.ask(b"OPTIONS /", *PREFLIGHT) for _ in range(2)]

        assert [answer.outcome for answer in answers] == [b"recorded", b"replayed"]
        assert [answer.status for answer in answers] == [200, 200]


async def test_a_preflight_is_permitted_where_the_upstream_cannot_be_asked() -> None:
    async with running_proxy("http://127.0.0.1:9", mode="auto", rules=REUSED) as proxy:
        answer = await proxy.ask(b"OPTIONS /x", *PREFLIGHT)

        assert (answer.status, permission(answer)) == (204, GRANTED)
        assert await outcomes(proxy) == [("error", 204)]


ECHO = b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: %b\r\nVary: Origin\r\nContent-Length: 2\r\n\r\nok"
OTHER_PAGE = b"http://localhost:3000"


@pytest.mark.parametrize("line", [b"GET /", b"OPTIONS /", b"POST /"])
@pytest.mark.parametrize("delivery", get_args(Delivery))
async def test_the_origin_that_a_service_echoed_is_replayed_as_that_of_the_asking_page(
    line: bytes, delivery: Delivery
) -> None:
    async with (
        Peer(ECHO % PAGE) as peer,
        running_proxy(
            peer.url, mode="auto", rules=REUSED, options=ProxyOptions(1000, 5, delivery=delivery)
        ) as proxy,
    ):
        first = await proxy.ask(line, ORIGIN)
        other = await proxy.ask(line, b"Origin: " + OTHER_PAGE)
        none = await proxy.ask(line)
        again = await proxy.ask(line, ORIGIN)

    answers = [first, other, none, again]
    assert [answer.outcome for answer in answers] == [b"recorded", *[b"replayed"] * 3]
    allowed = [answer.value(b"access-control-allow-origin") for answer in answers]
    assert allowed == [PAGE, OTHER_PAGE, PAGE, PAGE]


@pytest.mark.parametrize("allowed", [b"*", b"https://the-one-page.example"])
async def test_an_origin_that_a_service_always_permits_is_replayed_as_it_is(allowed: bytes) -> None:
    async with (
        Peer(ECHO % allowed) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):
        answers = [await proxy.ask(b"GET /", b"Origin: " + origin) for origin in (PAGE, OTHER_PAGE)]

    assert [answer.outcome for answer in answers] == [b"recorded", b"replayed"]
    assert {answer.value(b"access-control-allow-origin") for answer in answers} == {allowed}


async def test_pages_that_ask_at_the_same_time_each_get_their_own_origin() -> None:
    answered = asyncio.Event()
    async with (
        Peer(answered, ECHO % PAGE) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
    ):

        def ask(page: bytes) -> "asyncio.Task[Answer]":
            return asyncio.get_running_loop().create_task(proxy.ask(b"GET /", b"Origin: " + page))

        first = ask(PAGE)
        await peer.asked.wait()
        others = [ask(OTHER_PAGE), ask(PAGE)]
        await until(lambda: proxy.proxy.in_flight == 1 + len(others))
        answered.set()
        answers = await asyncio.gather(first, *others)

    assert [answer.outcome for answer in answers] == [b"recorded", b"replayed", b"replayed"]
    allowed = [answer.value(b"access-control-allow-origin") for answer in answers]
    assert allowed == [PAGE, OTHER_PAGE, PAGE]


async def test_options_without_a_method_to_ask_for_are_a_miss() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="replay") as proxy:
        answer = await proxy.ask(b"OPTIONS /", ORIGIN)

        assert (answer.status, answer.outcome) == (400, b"miss")


def test_a_preflight_without_an_origin_is_permitted_to_all() -> None:
    asked: Headers = ((b"Access-Control-Request-Method", b"GET"),)

    assert is_preflight("OPTIONS", asked)
    assert (b"Access-Control-Allow-Origin", b"*") in preflight_response(asked, "tw-1").headers
    assert readable_by_page(asked) == ()
