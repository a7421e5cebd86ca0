"""Asking a service again what is recorded."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Failure, Request, Response, ResponseHead
from tapeway.stores.memory import MemoryStore
from tests.admin.admin_and_proxy import World, world
from tests.conversations.recorded_calls import CHAT, assistant, call, user

KEY = "sk-proj-Zk3mQ8vT1xW5yB7nD2fH4jL6pR9sA0cE"
HEAD = CassetteHead("then", "run")
LIVE = "/api/v1/cassettes/default/interactions/0/live"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def answer(text: str, **more: object) -> dict[str, Any]:
    return {
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": assistant(text), "finish_reason": "stop"}],
        **more,
    }


def chat(text: str) -> Interaction:
    asked = {"model": "gpt-4o", "messages": [user("hi")]}
    made = call(0, CHAT, asked, answer(text), route="default")
    return replace(
        made,
        usage={"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    )


async def held(item: Interaction | ForeignInteraction) -> MemoryStore:
    store = MemoryStore()
    await store.save("default", StoredCassette(HEAD, (item,)))
    return store


async def stored(world: World) -> Any:
    return await world.got("/api/v1/cassettes/default")


async def test_before_it_is_asked_its_key_and_its_price_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with world(store=await held(chat("old"))) as found:
        ready = await found.got(LIVE)

        assert found.service.connections == 0
    assert (ready["possible"], ready["credential"]) == (True, "OPENAI_API_KEY")
    assert ready["usd"] == pytest.approx((1000 * 2.5 + 100 * 10) / 1_000_000)
    assert (ready["prompt_tokens"], ready["completion_tokens"]) == (1000, 100)
    assert KEY not in json.dumps(ready)


async def test_without_a_key_it_is_off() -> None:
    async with world(store=await held(chat("old"))) as found:
        ready = await found.got(LIVE)
        refused = await found.call("POST", LIVE)

        assert found.service.connections == 0
    assert ready["possible"] is False
    assert "OPENAI_API_KEY" in ready["reason"]
    assert refused.status == 409
    assert (await refused.json())["error"]["code"] == "no_credential"


async def test_both_answers_are_shown_and_nothing_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with world(store=await held(chat("old")), mode="replay") as found:
        before = await stored(found)
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        found.service.body = json.dumps(answer("new", usage=usage, extra=1)).encode()
        shown = await found.done("POST", LIVE)
        after = await stored(found)
        sent = found.service.asked.get_nowait()

    assert before == after
    assert (b"authorization", f"Bearer {KEY}".encode()) in sent.headers
    assert sent.target == CHAT
    assert [response["parts"][0]["text"] for response in shown["recorded"]["answers"]] == ["old"]
    assert [response["parts"][0]["text"] for response in shown["live"]["answers"]] == ["new"]
    assert shown["live"]["usage"]["total_tokens"] == 5
    assert shown["state"] == "different"
    (text,) = [
        difference for difference in shown["differences"] if difference["path"].endswith(".content")
    ]
    assert (text["first"], text["second"]) == ("old", "new")
    assert {"level": "info", "path": "body.extra", "recorded": "nothing", "live": "number"} in (
        shown["drift"]
    )


async def test_a_secret_in_the_live_answer_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with world(store=await held(chat("old"))) as found:
        found.service.body = json.dumps(answer(f"your key is {KEY}")).encode()
        shown = await found.done("POST", LIVE)

    assert KEY not in json.dumps(shown)
    assert "REDACTED" in shown["live"]["answers"][0]["parts"][0]["text"]


async def test_a_service_that_needs_no_key_is_asked_without_one(open_world: World) -> None:
    await open_world.ask("/things")

    ready = await open_world.got(LIVE)
    shown = await open_world.done("POST", LIVE)

    assert (ready["possible"], ready["credential"], ready["usd"]) == (True, None, None)
    assert json.loads(shown["recorded"]["response"]["body"]["text"]) == {"answer": 1}
    assert json.loads(shown["live"]["response"]["body"]["text"]) == {"answer": 2}


def other(**changes: Any) -> Interaction:
    request = Request("default", "GET", "/things")
    made = Interaction(0, request, Response(ResponseHead(200)))
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (other(request=Request("default", "POST", "/things")), "may change something"),
        (other(request=Request("elsewhere", "GET", "/things")), "no route leads there"),
        (other(request=Request("default", "GET", "/x?t=REDACTED.token.abcdefgh")), "a secret"),
        (other(failure=Failure("cut", "cut")), "recorded as a failure"),
        (
            other(request=Request("default", "GET", "/x", file=BodyFile("", 2**21, "0" * 64))),
            "a large body",
        ),
        (
            other(
                request=Request(
                    "default", "GET", "/things", credentials=(("x-own", "REDACTED.x.abcdefgh"),)
                )
            ),
            "which one is not known",
        ),
    ],
)
async def test_what_is_not_asked_says_why(item: Interaction, reason: str) -> None:
    async with world(store=await held(item)) as found:
        ready = await found.got(LIVE)
        refused = await found.call("POST", LIVE)

        assert found.service.connections == 0
    assert reason in ready["reason"]
    assert refused.status == 409
    assert (await refused.json())["message"] == ready["reason"]


async def test_an_interaction_of_another_kind_is_not_asked() -> None:
    document: dict[str, Json] = {"index": 0, "kind": "tool", "request": {}, "response": 1}
    async with world(store=await held(ForeignInteraction(0, document))) as found:
        refused = await found.call("POST", LIVE)

    assert (refused.status, (await refused.json())["error"]["code"]) == (409, "not_asked")
