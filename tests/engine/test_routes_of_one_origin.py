"""Routes that lead to one service answer from each other's recordings, their own first."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tapeway.core.cassette.plan import Incoming
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.engine.broker import Broker
from tapeway.engine.recording.selection import Policy
from tapeway.formats.other_tools.reading.http_call import with_match_key
from tapeway.ports import CassetteStore
from tests.stores.contract.kinds import KINDS
from tests.support.fakes.broker import ServedAnswer, serve
from tests.support.fakes.live_service import FakeResponder
from tests.support.reuse import REUSED

ROUTES = RouteTable(
    {
        "openai": Route("openai", "https://up"),
        "mine": Route("mine", "https://UP:443"),
        "below": Route("below", "https://up/v1"),
        "other": Route("other", "https://elsewhere"),
    },
)
HEAD = CassetteHead("", "run", {"tapeway_version": "0.1.0"})
MESSAGE = b'{"messages":[{"role":"user","content":"Hello"}]}'


@pytest.fixture(params=[kind for kind in KINDS if kind.name != "file-yaml"], ids=str)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CassetteStore]:
    async with request.param.of_test(request, tmp_path) as place:
        yield place.again()


def recording(route: str, target: str, answer: bytes, base: str = "https://up") -> Interaction:
    """One of tapeway's, or without a route of another tool."""
    request = Request(route, "POST", target, (), MESSAGE, base=base)
    return with_match_key(Interaction(0, request, Response(ResponseHead(200), answer)))


@asynccontextmanager
async def playing(
    store: CassetteStore, *recordings: Interaction, mode: Mode = "replay"
) -> AsyncIterator[Broker]:
    async with Broker(
        store,
        FakeResponder(),
        mode=mode,
        cassette="default",
        routes=ROUTES,
        policy=Policy(),
        new_head=lambda: HEAD,
        rules=REUSED,
    ) as broker:
        cassette = StoredCassette(HEAD, recordings)
        await broker.editor.put("default", cassette)
        yield broker


async def ask(broker: Broker, route: str, target: str, body: bytes = MESSAGE) -> ServedAnswer:
    request = Request(route, "POST", target, (), body, base=ROUTES.routes[route].url or "")
    return await serve(broker, "default", Incoming(request))


EVERYWHERE = [("openai", "/v1/x?a=1"), ("mine", "/v1/x?a=1"), ("below", "/x?a=1")]


@pytest.mark.parametrize("made_on", ["", "openai", "mine", "below"])
async def test_each_route_replays_what_was_recorded_on_another(
    store: CassetteStore, made_on: str
) -> None:
    target = dict(EVERYWHERE).get(made_on, "/v1/x?a=1")
    base = "https://up/v1" if made_on == "below" else "https://up"
    async with playing(store, recording(made_on, target, b"there", base)) as broker:
        found = [await ask(broker, *place) for place in EVERYWHERE]
        elsewhere = await ask(broker, "other", "/v1/x?a=1")

    assert {answer.body for answer in found} == {b"there"}
    assert elsewhere.outcome == "miss"


async def test_a_routes_own_recording_comes_first(store: CassetteStore) -> None:
    both: Sequence[Interaction] = (
        recording("openai", "/v1/x", b"of openai"),
        recording("mine", "/v1/x", b"of mine"),
    )
    async with playing(store, *both) as broker:
        found = [(await ask(broker, text, "/v1/x")).body for text in ("mine", "openai", "mine")]

    assert found == [b"of mine", b"of openai", b"of mine"]


async def test_auto_asks_only_for_what_no_route_to_the_service_has(store: CassetteStore) -> None:
    async with playing(store, recording("openai", "/v1/x", b"there"), mode="auto") as broker:
        found = [await ask(broker, "mine", text) for text in ("/v1/x", "/v1/y")]
        again = await ask(broker, "openai", "/v1/y")

    assert [(answer.outcome, answer.body) for answer in (*found, again)] == [
        ("replayed", b"there"),
        ("recorded", b"answer 1"),
        ("replayed", b"answer 1"),
    ]


async def test_a_miss_names_the_other_routes_recording_without_a_difference_in_the_route(
    store: CassetteStore,
) -> None:
    async with playing(store, recording("openai", "/v1/x", b"there")) as broker:
        asked = MESSAGE.replace(b"Hello", b"Goodbye")
        request = Request("below", "POST", "/x", (), asked, base="https://up/v1")
        plan = await broker.decide("default", Incoming(request))

    assert plan.target == "/v1/x"


async def test_record_asks_whatever_another_route_has(store: CassetteStore) -> None:
    async with playing(store, recording("openai", "/v1/x", b"there"), mode="record") as broker:
        assert (await ask(broker, "mine", "/v1/x")).outcome == "recorded"
