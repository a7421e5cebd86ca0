"""A miss says over the wire which recording is nearest, where it differs, and which rule would do."""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tapeway.core.json_text import Json
from tapeway.core.matching.rules import parse_rules
from tapeway.engine.recording.selection import Policy
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.canary import canary
from tests.support.socket_upstream import OK, Peer

JSON = b"Content-Type: application/json"
TOOL: dict[str, Json] = {"type": "function", "function": {"name": "add", "strict": True}}
BODY: dict[str, Any] = {
    "model": "gpt-4o",
    "temperature": 0.2,
    "stream": False,
    "n": 1,
    "tools": [TOOL],
    "messages": [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "How many legs does a spider have?"},
    ],
}


async def chat(proxy: RunningProxy, body: object, *fields: bytes, query: bytes = b"") -> Any:
    line = b"POST /v1/chat/completions" + query
    return await proxy.ask(line, JSON, *fields, body=orjson.dumps(body))


async def missed(
    proxy: RunningProxy, body: object, *fields: bytes, query: bytes = b""
) -> dict[str, Any]:
    """The answer's document, of a request that has to be missed."""
    answer = await chat(proxy, body, *fields, query=query)
    assert (answer.status, answer.outcome) == (400, b"miss")
    found: dict[str, Any] = orjson.loads(answer.body)
    return found


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(orjson.dumps(BODY))
    change(body)
    return body


@pytest.mark.parametrize(
    ("change", "path", "recorded", "requested"),
    [
        (
            lambda body: body["messages"][1].update(content="How many legs does a beetle have?"),
            "messages[1].content",
            "How many legs does a spider have?",
            "How many legs does a beetle have?",
        ),
        (lambda body: body.update(stream=True), "stream", False, True),
        (lambda body: body.update(temperature=0.3), "temperature", 0.2, 0.3),
        (lambda body: body.update(n=2), "n", 1, 2),
        (lambda body: body.update(model="gpt-5"), "model", "gpt-4o", "gpt-5"),
        (
            lambda body: body["tools"][0]["function"].update(name="sub"),
            "tools[0].function.name",
            "add",
            "sub",
        ),
    ],
)
async def test_what_was_changed_is_named_and_a_rule_makes_it_match(
    change: Callable[[dict[str, Any]], object], path: str, recorded: object, requested: object
) -> None:
    async with Peer(OK) as peer, running_proxy(peer.url) as proxy:
        await chat(proxy, BODY)
        await proxy.broker.set_mode("replay")

        document = await missed(proxy, changed(change))

        told = document["tapeway"]
        told_values = [
            value if isinstance(value, str) else json.dumps(value)
            for value in (recorded, requested)
        ]
        note = (
            '; rule that would match, for [rules] in tapeway.toml: ignore = ["body.temperature"]'
            if path == "temperature"
            else f"; no rule is suggested: body.{path} decides the answer"
        )
        assert document["message"] == (
            "replay miss: POST /v1/chat/completions is not in cassette 'default'; "
            f"nearest #0 differs at {path}: {' → '.join(told_values)}"
            + ("" if path.endswith("content") else note)
        )
        difference = {"path": f"body.{path}", "recorded": recorded, "requested": requested}
        assert told["nearest"] == [{"index": 0, "differences": [difference], "more": 0}]
        # To ignore a prompt, or what decides the answer, is never suggested.
        ignored = 'ignore = ["body.temperature"]' if path == "temperature" else None
        assert told["suggestion"] == ignored
        entry = next(iter(proxy.journal))
        assert [recording.document for recording in entry.nearest] == told["nearest"]
        assert (entry.message, entry.suggestion) == (document["message"], told["suggestion"])

        await proxy.broker.add_rules("default", parse_rules({"ignore": [f"body.{path}"]}))
        assert (await chat(proxy, changed(change))).outcome == b"replayed"
        assert peer.connections == 1


async def test_spacing_and_the_order_of_keys_are_no_difference() -> None:
    async with Peer(OK) as peer, running_proxy(peer.url) as proxy:
        await chat(proxy, BODY)
        await proxy.broker.set_mode("replay")
        written = orjson.dumps(dict(reversed(BODY.items())), option=orjson.OPT_INDENT_2)

        answer = await proxy.ask(b"POST /v1/chat/completions", JSON, body=written)

        assert answer.outcome == b"replayed"


async def test_a_recording_that_is_used_up_is_named() -> None:
    async with Peer(OK) as peer, running_proxy(peer.url, policy=Policy(repeats="miss")) as proxy:
        await chat(proxy, BODY)
        await proxy.broker.set_mode("replay")
        await chat(proxy, BODY)

        document = await missed(proxy, BODY)

        assert document["message"].endswith("once, all used up in this take: #0")
        assert document["tapeway"]["nearest"] == [{"index": 0, "differences": [], "more": 0}]
        assert document["tapeway"]["suggestion"] is None


async def test_no_secret_of_either_run_is_in_what_explains_a_miss() -> None:
    recorded, asking, inside = canary(), canary(), canary()
    async with Peer(OK) as peer, running_proxy(peer.url) as proxy:
        first = {**BODY, "user": f"me, with {recorded}", "api_key": recorded}
        await chat(
            proxy,
            first,
            b"Authorization: Bearer " + recorded.encode(),
            query=b"?key=" + recorded.encode(),
        )
        await proxy.broker.set_mode("replay")

        second = {**BODY, "user": f"you, with {asking}", "api_key": inside, "n": 2}
        answer = await chat(
            proxy,
            second,
            b"Authorization: Bearer " + asking.encode(),
            query=b"?key=" + asking.encode(),
        )

        assert answer.outcome == b"miss"
        assert b'"body.user"' in answer.body
        shown = answer.head + answer.body + repr(list(proxy.journal)).encode()
        for secret in (recorded, asking, inside):
            assert secret.encode() not in shown


async def test_where_the_cassette_does_not_exist_it_says_so_and_names_those_that_come_near() -> (
    None
):
    async with Peer(OK) as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"GET /x", b"Tapeway-Cassette: suite/login")
        await proxy.broker.set_mode("replay")

        said = await missed(proxy, BODY, b"Tapeway-Cassette: suite/logni")
        far = await missed(proxy, BODY, b"Tapeway-Cassette: zebra")

    start = "replay miss: POST /v1/chat/completions: there is no cassette"
    record = "record it with --mode auto"
    assert said["message"] == f"{start} 'suite/logni' (is 'suite/login' meant?); {record}"
    assert far["message"] == f"{start} 'zebra'; {record}"
    assert (said["tapeway"]["nearest"], said["tapeway"]["suggestion"]) == ([], None)


async def test_where_nothing_is_recorded_for_method_and_path_it_says_so() -> None:
    async with Peer(OK) as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"POST /v1/embeddings", JSON, body=orjson.dumps(BODY))
        await proxy.broker.set_mode("replay")

        said = await missed(proxy, BODY)

    assert said["message"] == (
        "replay miss: POST /v1/chat/completions is not in cassette 'default'; "
        "nothing is recorded for this method and path"
    )
    assert said["tapeway"]["nearest"] == []


async def test_each_miss_is_one_warning_with_the_nearest_recording_and_the_difference(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = canary()
    async with Peer(OK) as peer, running_proxy(peer.url) as proxy:
        await chat(proxy, BODY)
        await proxy.broker.set_mode("replay")
        await missed(
            proxy,
            changed(lambda body: body["messages"][0].update(content=f"Be brief\n{secret}")),
            b"Authorization: Bearer " + secret.encode(),
        )
        await missed(proxy, BODY, b"Tapeway-Cassette: absent")

    first, second = [
        record.getMessage() for record in caplog.records if record.levelname == "WARNING"
    ]
    assert first.startswith(
        "replay miss: POST /v1/chat/completions is not in cassette 'default'; nearest #0 differs at "
        "messages[0].content: You are brief. → Be brief"
    )
    assert "there is no cassette 'absent'; record it with --mode auto" in second
    assert secret not in caplog.text
    assert "\n" not in first


async def test_a_guessed_route_is_no_difference_to_what_the_default_route_recorded() -> None:
    store = MemoryStore()
    async with Peer(OK) as peer, running_proxy(peer.url, store=store) as proxy:
        await chat(proxy, BODY)
    async with running_proxy(
        mode="replay", store=store, routes={"openai": "http://127.0.0.1:1"}
    ) as proxy:
        assert (await chat(proxy, BODY)).outcome == b"replayed"
        document = await missed(proxy, changed(lambda body: body.update(seed=2)))

        assert (
            "; nearest #0 differs at seed: nothing → 2; rule that would match"
            in document["message"]
        )
        assert document["tapeway"]["suggestion"] == 'ignore = ["body.seed"]'


async def test_a_miss_says_why_no_rule_is_suggested_for_what_decides_the_answer() -> None:
    store = MemoryStore()
    async with Peer(OK) as peer, running_proxy(peer.url, store=store) as proxy:
        await chat(proxy, BODY)
        await proxy.broker.set_mode("replay")
        document = await missed(proxy, changed(lambda body: body.update(n=2)))

    assert "no rule is suggested: body.n decides the answer" in document["message"]
    assert document["tapeway"].get("suggestion") is None
