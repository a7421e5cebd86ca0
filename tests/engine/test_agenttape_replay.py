"""AgentTape's recordings answer requests: by the keys it stored, in its order, once each.

Each case is served by cassettes in memory, and by those of a store that several processes share.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tapeway.core.cassette.plan import Incoming, Replay
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.json_text import Json
from tapeway.core.matching import rules
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.messages import Headers, Request
from tapeway.engine.broker import Broker
from tapeway.engine.editing.changes import Addition
from tapeway.engine.recording.selection import Policy
from tapeway.ports import CassetteStore
from tapeway.stores.memory import MemoryStore
from tests.formats.agenttape.cassettes import loaded
from tests.stores.model_store import ModelPlace, ModelStore
from tests.support.fakes.live_service import FakeResponder

ROUTES = RouteTable({"openai": Route("openai", "https://api.openai.com")})
HTTPX = ((b"Accept", b"*/*"), (b"User-Agent", b"python-httpx/0.28.1"))
REQUESTS = (
    (b"User-Agent", b"python-requests/2.34.2"),
    (b"Accept-Encoding", b"gzip, deflate"),
    (b"Accept", b"*/*"),
    (b"Connection", b"keep-alive"),
)
JSON = (b"Content-Type", b"application/json")
TWICE: dict[str, Json] = {"model": "m", "messages": [{"role": "user", "content": "again"}]}
SECRET = b'{"token":"t-secret-1234567890","text":"sk-canary-0123456789abcdef","nonce":9}'

Play = Callable[..., AbstractAsyncContextManager["Player"]]


@dataclass(frozen=True, slots=True)
class Player:
    """A broker over one cassette, and what its clients ask."""

    broker: Broker

    async def ask(self, request: Request) -> Replay | Miss:
        plan = await self.broker.decide("tape", Incoming(request, route_guessed=not request.route))
        assert isinstance(plan, Replay | Miss)
        return plan

    async def index(self, request: Request) -> int | None:
        """The recording that answered, None for a miss."""
        plan = await self.ask(request)
        return plan.interaction.index if isinstance(plan, Replay) else None


@pytest.fixture(params=["memory", "shared"])
def play(request: pytest.FixtureRequest) -> Play:
    """Plays one of AgentTape's files."""

    @asynccontextmanager
    async def playing(
        name: str, repeats: Repeats | None = None, ruled: Rules = rules.NO_RULES
    ) -> AsyncIterator[Player]:
        shared = request.param == "shared"
        other: CassetteStore = ModelStore(ModelPlace()) if shared else MemoryStore()
        broker = Broker(
            other,
            FakeResponder(),
            mode="replay",
            cassette="tape",
            routes=ROUTES,
            policy=Policy(repeats=repeats),
            new_head=lambda: CassetteHead("", "run"),
            rules=ruled,
        )
        async with broker:
            await other.save("tape", loaded(name))
            yield Player(broker)

    return playing


def get(target: str, headers: Headers = HTTPX) -> Request:
    return Request("default", "GET", target, headers)


def post(body: bytes, headers: Headers = HTTPX, kind: tuple[bytes, bytes] = JSON) -> Request:
    return Request("default", "POST", "/echo", (*headers, kind), body)


def call(path: str, body: Json, route: str = "openai") -> Request:
    """As any client of the API posts it."""
    return Request(route, "POST", path, (JSON,), json.dumps(body).encode())


def chat(text: str, **more: Json) -> Request:
    messages: Json = [{"role": "user", "content": text}]
    return call("/v1/chat/completions", {"model": "m", "messages": messages, **more})


@pytest.mark.parametrize("name", ["0.1.8/http.yaml", "0.1.8-json/http.json", "0.1.5/http.yaml"])
async def test_a_request_is_found_by_the_key_that_was_taken_before_it_was_redacted(
    name: str, play: Play
) -> None:
    async with play(name) as player:
        # The file says ***REDACTED*** for the token, the key and the address.
        assert await player.index(post(SECRET.replace(b"1234567890", b"0987654321"))) is None
        assert await player.index(post(SECRET)) == 1
        assert await player.index(post(b'{"note":"to b@example.com"}')) is None
        assert await player.index(post(b'{"note":"to a@example.com"}')) == 2
        assert await player.index(post(b'{"note": "to c@example.com"}', REQUESTS)) is not None


@pytest.mark.parametrize("name", ["0.1.0/http.yaml", "0.1.0-json/http.json"])
async def test_keys_of_the_first_release_treat_json_as_text(name: str, play: Play) -> None:
    async with play(name) as player:
        assert await player.index(post(b'{"note":"to b@example.com"}')) is None
        assert await player.index(post(b'{"note":"to a@example.com"}')) == 2


@pytest.mark.parametrize("release", ["0.1.8", "0.1.5", "0.1.0"])
async def test_a_form_is_found_as_each_release_read_it(release: str, play: Play) -> None:
    form = (b"Content-Type", b"application/x-www-form-urlencoded")
    async with play(f"{release}/http.yaml") as player:
        assert await player.index(post(b"a=1&a=2&b=x+y", HTTPX, form)) == 3
        assert await player.index(post(b"a=1&a=2", REQUESTS, form)) is not None


async def test_what_the_tool_was_told_to_ignore_does_not_count(play: Play) -> None:
    async with play("0.1.8/http.yaml") as player:
        assert await player.index(get("/json?b=1&timestamp=8&a=2%20x")) == 0
        assert await player.index(get("/json?b=1&timestamp=8&a=3%20x")) is None


async def test_the_list_of_what_is_ignored_can_be_given(play: Play) -> None:
    nothing = Rules(agenttape_ignore=())
    async with play("0.1.8/http.yaml", ruled=nothing) as player:
        assert await player.index(get("/json?b=1&timestamp=8&a=2%20x")) is None
        assert await player.index(get("/json?b=1&timestamp=7&a=2%20x")) == 0


async def test_each_recording_answers_once_and_in_order(play: Play) -> None:
    async with play("0.1.8/llm.yaml") as player:
        asked = call("/v1/chat/completions", {**TWICE, "stream": False})
        assert [await player.index(asked) for _ in range(3)] == [3, 4, None]
        miss = await player.ask(asked)

    assert isinstance(miss, Miss)
    assert miss.used_up == (3, 4)


async def test_a_call_that_is_asked_as_a_stream_is_answered_as_one(play: Play) -> None:
    async with play("0.1.8/llm.yaml") as player:
        found = await player.ask(call("/v1/chat/completions", {**TWICE, "stream": True}))

    assert isinstance(found, Replay)
    assert found.interaction.response.body.startswith(b"data: ")


async def test_another_repeat_rule_may_be_asked_for(play: Play) -> None:
    async with play("0.1.8/llm.yaml", repeats="cycle") as player:
        asked = call("/v1/chat/completions", TWICE)
        assert [await player.index(asked) for _ in range(5)] == [3, 4, 3, 4, 3]


@pytest.mark.parametrize("release", ["0.1.8", "0.1.5", "0.1.0"])
async def test_an_sdks_call_is_found_whatever_its_request_says_of_how_it_is_made(
    release: str, play: Play
) -> None:
    async with play(f"{release}/llm.yaml") as player:
        body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        assert isinstance(body, dict)
        assert await player.index(call("/v1/chat/completions", body)) is None
        assert await player.index(chat("Hi", temperature=0, stream=False)) == 0
        assert await player.index(chat("mail to b@example.com")) == 2
        assert await player.index(chat("mail to a@example.com", user=None)) == 1
        responses: Json = {"input": "2+2", "instructions": "short", "model": "m"}
        found = await player.index(call("/openai/v1/responses", responses, "default"))
        assert found is not None


async def test_a_message_of_the_sdk_put_back_into_the_conversation_is_recognised(
    play: Play,
) -> None:
    tool: Json = {"name": "get_weather", "arguments": '{"city": "London"}'}
    asked: Json = {"id": "call_1", "type": "function", "function": tool}
    parameters: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
    question: Json = {"role": "user", "content": "weather?"}
    body: dict[str, Json] = {
        "model": "m",
        "messages": [
            question,
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "annotations": [],
                "tool_calls": [asked],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "15"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
        ],
    }
    async with play("0.1.8/llm.yaml") as player:
        first = await player.ask(call("/v1/chat/completions", {**body, "messages": [question]}))
        plan = await player.ask(call("/v1/chat/completions", body))

    assert isinstance(first, Replay)
    assert b'"tool_calls"' in first.interaction.response.body
    assert isinstance(plan, Replay)
    assert b"It is 15 degrees.\\nRainy." in plan.interaction.response.body


@pytest.mark.parametrize("name", ["0.1.8/ordered.yaml"])
async def test_what_was_recorded_in_order_answers_in_order_whatever_is_asked(
    name: str, play: Play
) -> None:
    async with play(name) as player:
        asked = [get("/two"), chat("second"), get("/one"), chat("anything"), get("/new")]
        assert [await player.index(request) for request in asked] == [0, 3, 1, 4, 2]
        assert [await player.index(request) for request in (get("/one"), chat("first"))] == [
            None,
            None,
        ]


async def test_what_was_recorded_by_the_matcher_exact_is_found(play: Play) -> None:
    async with play("0.1.8/exact.yaml") as player:
        asked = [get("/two"), chat("second"), get("/one"), get("/one")]
        assert [await player.index(request) for request in asked] == [1, 4, 0, 2]


async def test_a_stream_of_a_result_that_cannot_be_streamed_is_a_miss_that_says_so(
    play: Play,
) -> None:
    body: dict[str, Json] = {"input": "2+2", "instructions": "short", "model": "m"}
    async with play("0.1.8/llm.yaml") as player:
        miss = await player.ask(call("/v1/responses", {**body, "stream": True}))
        again = await player.index(call("/v1/responses", {**body, "stream": False}))

    assert isinstance(miss, Miss)
    assert "matches, but cannot be streamed" in miss.message
    assert again == 8


async def test_recordings_that_tapeway_brought_in_from_other_tools_have_no_such_rule(
    play: Play, tmp_path: Path
) -> None:
    async with play("0.1.8/http.yaml") as player:
        cassette = loaded("0.1.8/http.yaml")
        head = replace(cassette.head, meta={"tapeway_version": "0"})
        await player.broker.store.save("other", StoredCassette(head, cassette.interactions))
        plan = await player.broker.decide("other", Incoming(get("/json?b=1&timestamp=8&a=2%20x")))

    assert isinstance(plan, Miss)


async def test_recordings_of_agenttapes_are_found_in_an_empty_cassette_that_they_were_added_to(
    play: Play,
) -> None:
    async with play("0.1.8/http.yaml") as player:
        cassette = loaded("0.1.8/http.yaml")
        asked = Incoming(get("/json?b=1&timestamp=8&a=2%20x"))
        assert isinstance(await player.broker.decide("new", asked), Miss)
        additions = [Addition(item) for item in cassette.interactions]
        await player.broker.editor.append("new", additions, head=cassette.head, secrets="keep")
        plan = await player.broker.decide("new", asked)

    assert isinstance(plan, Replay)
