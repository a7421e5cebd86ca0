"""What a call asked and what came back, in a few words."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tapeway.conversations.gist import MOST, Gist, gist, last_question
from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Failure, Headers, Request, Response, ResponseHead

JSON: Headers = ((b"Content-Type", b"application/json"),)
SSE: Headers = ((b"Content-Type", b"text/event-stream"),)
CHAT = "/v1/chat/completions"


def item(
    target: str, request: Any, response: Any, status: int = 200, *, method: str = "POST"
) -> Interaction:
    sent = b"" if request is None else json.dumps(request).encode()
    got = response if isinstance(response, bytes) else json.dumps(response).encode()
    head = ResponseHead(status, "", SSE if got.startswith(b"data:") else JSON)
    return Interaction(0, Request("openai", method, target, JSON, sent), Response(head, got))


def messages(*each: tuple[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": role, "content": text} for role, text in each]}


def reply(reason: str = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": reason}]}


WEATHER = {"name": "get_weather", "arguments": '{"city": "Paris", "unit": "C"}'}
EVENTS = b"".join(
    b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode()
    for text in ("Hel", "lo")
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            item(CHAT, messages(("system", "Be brief"), ("user", "Hi")), reply(content="Hello!")),
            Gist("Hi", "Hello!"),
        ),
        (item(CHAT, messages(("user", "Hi")) | {"stream": True}, EVENTS), Gist("Hi", "Hello")),
        (
            item(
                CHAT,
                messages(("user", "Weather?")),
                reply("tool_calls", tool_calls=[{"id": "a", "function": WEATHER}]),
            ),
            Gist("Weather?", "get_weather(city=Paris, …)"),
        ),
        (
            item(
                CHAT,
                {
                    "messages": [
                        {
                            "role": "assistant",
                            "tool_calls": [{"id": "a", "type": "function", "function": WEATHER}],
                        },
                        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
                    ]
                },
                reply(content="Go out."),
            ),
            Gist("get_weather: sunny", "Go out."),
        ),
        (
            item(CHAT, messages(("user", "Go on")), reply("length", content="And then")),
            Gist("Go on", "And then (length)"),
        ),
        (
            item(CHAT, messages(("user", "Hi")), {"error": {"message": "Slow down"}}, status=429),
            Gist("Hi", "429 Slow down"),
        ),
        (
            item("/v1/embeddings", {"model": "e", "input": "some words"}, {"data": [1, 2]}),
            Gist("input: some words, model: e", "data: [2 items]"),
        ),
        (
            item("/search?q=two%20words&page=2", None, [{"id": 1}, {"id": 2}], method="GET"),
            Gist("q=two words page=2", "[2 items]"),
        ),
        (
            item(
                "/mcp",
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}},
                b'data: {"jsonrpc": "2.0", "id": 1, "result": {"ok": true}}\n\n',
            ),
            Gist(
                "method: tools/call, jsonrpc: 2.0, id: 1, params: name",
                "jsonrpc: 2.0, id: 1, result: ok",
            ),
        ),
        (item("/gone", None, {"title": "No"}, 404, method="GET"), Gist("", "404 title: No")),
        (item("/a", None, b"\x00\x01", method="GET"), Gist("", "[application/json, 2 bytes]")),
        (item("/a", None, b"\x00", method="GET"), Gist("", "[application/json, 1 byte]")),
    ],
)
def test_a_row_says_what_was_asked_and_answered(found: Interaction, expected: Gist) -> None:
    assert gist(found) == expected


def test_the_parts_of_a_form_are_named() -> None:
    headers: Headers = ((b"Content-Type", b"multipart/form-data; boundary=x"),)
    body = (
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\xff\0\r\n'
        b"--x--\r\n"
    )

    request = Request("openai", "POST", "/v1/audio/transcriptions", headers, body)

    assert last_question(request) == "model=whisper-1 file=[a.wav]"


def test_escapes_of_a_tool_s_result_are_texts() -> None:
    messages_ = [{"role": "tool", "name": "look", "content": r'{"t": "12\u00b0C"}'}]

    assert gist(item(CHAT, {"messages": messages_}, reply(content="ok"))).asked == (
        'look: {"t": "12°C"}'
    )


def test_a_failure_is_named() -> None:
    failed = replace(
        item(CHAT, messages(("user", "Hi")), b""), failure=Failure("timeout", "it was silent")
    )

    assert gist(failed) == Gist("Hi", "timeout: it was silent")


def test_another_tool_s_call_is_told_too() -> None:
    tool: dict[str, Json] = {
        "kind": "tool",
        "request": {"name": "add", "args": [1, 2]},
        "response": 3,
    }

    assert gist(ForeignInteraction(0, tool)) == Gist("name: add, args: [2 items]", "3")


def test_a_long_text_is_cut_and_is_one_line() -> None:
    found = item(CHAT, messages(("user", "a word\n\n" * 5000)), reply(content="x" * 5000))

    said = gist(found)

    assert max(map(len, said)) == MOST
    assert "\n" not in said.asked
    assert said.answered == "x" * (MOST - 1) + "…"
    assert last_question(found.request) == said.asked


def test_whatever_a_body_holds_has_a_gist() -> None:
    for body in (
        b"{",
        b"[]",
        b"null",
        b'{"messages": 3}',
        b'{"messages": [{"role": []}]}',
        b"\xff",
    ):
        said = gist(item(CHAT, None, body))
        assert said == gist(replace(item(CHAT, None, body)))
        assert last_question(Request("openai", "POST", CHAT, JSON, body)) is not None
