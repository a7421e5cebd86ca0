"""Two recordings of one answer are equal, however it was cut, numbered and timed."""

import json
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import Interaction
from tests.cli.invocation import run, written
from tests.conversations.recorded_calls import (
    CHAT,
    MESSAGES,
    RESPONSES,
    assistant,
    call,
    chat,
    sse,
    user,
)

EVENTS = b"text/event-stream"
ALIKE = "0 equal, 1 equal but for ids and times, 0 different, 0 only in a, 0 only in b\n"


def cut(text: str, seed: int) -> list[str]:
    """The text in pieces, as services cut it."""
    source = random.Random(seed)
    pieces: list[str] = []
    while text:
        size = source.randint(1, 7)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def chat_stream(
    seed: int,
    text: str = "It is sunny in Paris.",
    arguments: str = '{"city": "Paris"}',
    tokens: int = 9,
    model: str = "gpt-5.5",
) -> Interaction:
    """A streamed answer of Chat Completions with a tool call and token counts."""

    def event(delta: Json, end: str | None = None) -> Json:
        return {
            "id": f"chatcmpl-{seed}Zk81",
            "created": 1_700_000_000 + seed,
            "model": model,
            "obfuscation": "x" * seed,
            "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
        }

    def events() -> Iterator[Json]:
        for piece in cut(text, seed):
            yield event({"content": piece})
        named: Json = {"index": 0, "id": f"call_{seed}kQ8dR2", "function": {"name": "weather"}}
        yield event({"tool_calls": [named]})
        for piece in cut(arguments, seed):
            yield event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        yield event({}, "tool_calls")
        counts: Json = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
        yield {"id": "x", "choices": [], "usage": counts}

    asked: Json = {"model": "gpt-5.5", "messages": [user("hi")], "stream": True}
    return call(0, CHAT, asked, sse(list(events())), media=EVENTS)


def message_stream(seed: int, text: str = "Good morning") -> Interaction:
    """The same of Anthropic's Messages."""
    start: Json = {"id": f"msg_{seed}aB3dE", "model": "claude", "usage": {"input_tokens": 3}}
    events: list[Json] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    for piece in cut(text, seed):
        delta: Json = {"type": "text_delta", "text": piece}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    end: Json = {"stop_reason": "end_turn"}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 4}})
    asked: Json = {"model": "claude", "messages": [user("hi")], "stream": True}
    return call(0, MESSAGES, asked, sse(events), route="anthropic", media=EVENTS)


def response_stream(seed: int, text: str = "Good morning") -> Interaction:
    """The same of OpenAI's Responses."""
    item: Json = {"id": f"msg_{seed}aB3dE", "type": "message", "role": "assistant", "content": []}
    events: list[Json] = [
        {"type": "response.created", "response": {"id": f"resp_{seed}", "model": "gpt-5.5"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    for piece in cut(text, seed):
        delta: dict[str, Json] = {"type": "response.output_text.delta", "delta": piece}
        events.append(
            delta | {"output_index": 0, "content_index": 0, "item_id": f"msg_{seed}aB3dE"}
        )
    asked: Json = {"model": "gpt-5.5", "input": "hi", "stream": True}
    return call(0, RESPONSES, asked, sse(events), media=EVENTS)


@pytest.mark.parametrize("stream", [chat_stream, message_stream, response_stream])
def test_a_stream_is_equal_however_it_is_cut_and_numbered(
    capsys: pytest.CaptureFixture[str], stream: Callable[[int], Interaction]
) -> None:
    written("a", stream(1))
    for seed in range(2, 8):
        written("b", stream(seed))
        assert run(capsys, "diff", "a", "b") == (0, ALIKE, "")


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        (
            chat_stream(2, text="It is cloudy in Paris."),
            [
                "  response.text",
                '    a: "It is sunny in Paris."',
                '    b: "It is cloudy in Paris."',
            ],
        ),
        (
            chat_stream(2, arguments='{"city":"Rome"}'),
            ["  response.tool_calls[0].arguments.city", '    a: "Paris"', '    b: "Rome"'],
        ),
        (
            chat_stream(2, tokens=8),
            ["  response.usage.completion_tokens", "    a: 9", "    b: 8"],
        ),
        (chat_stream(2, model="gpt-6"), ["  response.model", '    a: "gpt-5.5"', '    b: "gpt-6"']),
    ],
)
def test_what_a_stream_says_is_compared(
    capsys: pytest.CaptureFixture[str], changed: Interaction, lines: Sequence[str]
) -> None:
    written("a", chat_stream(1))
    written("b", changed)

    code, out, _ = run(capsys, "diff", "a", "b")

    shown = out.splitlines()
    assert (code, [line for line in lines if line not in shown]) == (1, [])


def test_every_choice_of_a_stream_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def two(*texts: str) -> Interaction:
        events: list[Json] = [
            {"choices": [{"index": at, "delta": {"content": text}}]}
            for at, text in enumerate(texts)
        ]
        return call(0, CHAT, {"messages": [user("hi")]}, sse(events), media=EVENTS)

    written("a", two("one", "two"))
    written("b", two("one", "three"))

    assert run(capsys, "diff", "a", "b")[1].splitlines()[1:4] == [
        "  response.choices[1].text",
        '    a: "two"',
        '    b: "three"',
    ]


def test_an_answer_that_is_no_stream_is_compared_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(seed: int, **more: Json) -> Interaction:
        said: dict[str, Json] = assistant("hello")  # type: ignore[assignment]
        arguments = json.dumps({"n": 1}, indent=seed)
        made: Json = {"id": f"call_{seed}", "function": {"name": "f", "arguments": arguments}}
        value: Json = {
            "id": f"chatcmpl-{seed}",
            "created": seed,
            "system_fingerprint": f"fp_{seed}",
            "choices": [{"message": said | {"tool_calls": [made]}, "logprobs": None, **more}],
        }
        return call(0, CHAT, {"messages": [user("hi")]}, value)

    written("a", answer(1))
    written("b", answer(2))
    assert run(capsys, "diff", "a", "b") == (0, ALIKE, "")

    written("b", answer(2, safety={"blocked": True}))
    assert run(capsys, "diff", "a", "b")[1].splitlines()[1] == "  response.body.choices[0].safety"


@pytest.mark.parametrize("streamed", [False, True])
def test_identifiers_that_a_tool_is_called_with_count(
    capsys: pytest.CaptureFixture[str], streamed: bool
) -> None:
    def asking_for(user_id: str) -> Interaction:
        arguments = json.dumps({"user_id": user_id, "created_at": 1})
        if streamed:
            return chat_stream(1, arguments=arguments)
        made: Json = {"id": "call_1", "function": {"name": "f", "arguments": arguments}}
        return chat(0, [user("hi")], {"role": "assistant", "tool_calls": [made]})

    written("a", asking_for("alice"))
    written("b", asking_for("bob"))

    code, out, _ = run(capsys, "diff", "a", "b")

    assert (code, out.count("arguments.user_id")) == (1, 1)


def test_times_and_ids_of_what_is_said_are_no_reason_to_call_it_equal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(
        "a", call(0, "/v1/meeting", {}, {"start_time": "2026-11-21", "id": "m", "model_id": "x"})
    )
    written(
        "b", call(0, "/v1/meeting", {}, {"start_time": "2026-11-22", "id": "n", "model_id": "y"})
    )

    code, out, _ = run(capsys, "diff", "a", "b")

    paths = [line.strip() for line in out.splitlines() if line.startswith("  response")]
    assert (code, paths) == (1, ["response.body.start_time", "response.body.model_id"])


def loop(seed: str, city: str = "Paris") -> list[Interaction]:
    """An agent's two calls: the second sends back the identifiers of the first."""
    made: Json = {
        "id": f"call_{seed}",
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps({"city": city})},
    }
    said: dict[str, Json] = {"role": "assistant", "content": None, "tool_calls": [made]}
    result: Json = {"role": "tool", "tool_call_id": f"call_{seed}", "content": f"{seed}: sunny"}
    return [
        chat(0, [user("weather?")], said),
        chat(1, [user("weather?"), said, result], f"It is sunny, says call_{seed}"),
    ]


@pytest.mark.parametrize(("one", "other"), [("h5Xw0Vb1jZ", "k9Qd3Lm2aB"), ("one1", "two2")])
def test_identifiers_are_followed_from_answers_into_requests_and_texts(
    capsys: pytest.CaptureFixture[str], one: str, other: str
) -> None:
    written("a", *loop(one))
    items = loop(other)
    # The result of the tool differs in its own text, which nobody issued.
    written("b", items[0], *loop(other)[1:])

    code, out, _ = run(capsys, "diff", "a", "b")

    paths = [line.strip() for line in out.splitlines() if line.startswith("  request")]
    assert (code, paths) == (1, ["request.body.messages[2].content"])
    assert "tool_call_id" not in out


def test_a_call_with_other_arguments_is_shown_at_both_places(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("a", *loop("h5Xw0Vb1jZ"))
    written("b", *loop("h5Xw0Vb1jZ", "Rome"))

    code, out, _ = run(capsys, "diff", "a", "b")

    assert (code, out.count('"Rome"') + out.count("Rome\\"), "1 only" in out) == (1, 2, False)


def test_an_inserted_call_does_not_shift_those_behind_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("a", *[chat(at, [user(f"job h5Xw0Vb1j{at}")], f"done {at}") for at in range(3)])
    again = [chat(at, [user(f"job k9Qd3Lm2a{at}")], f"done {at}") for at in range(3)]
    written("b", chat(0, [user("first")], "new"), *again)

    out = run(capsys, "diff", "a", "b")[1]

    assert "only in b: #0 " in out
    assert "response.body" not in out


def test_a_cut_stream_differs_from_a_whole_one(capsys: pytest.CaptureFixture[str]) -> None:
    asked: Json = {"messages": [user("hi")]}
    events = sse([{"choices": [{"index": 0, "delta": {"content": "x"}}]}])
    written("a", call(0, CHAT, asked, events, media=EVENTS))
    written("b", call(0, CHAT, asked, events, media=EVENTS, verdict="truncated"))

    assert run(capsys, "diff", "a", "b")[0] == 1


def test_markdown_shows_changed_values_as_a_diff_and_is_no_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("a", chat(0, [user("hi")], "one ``` <b>\n# x"))
    written("b", chat(0, [user("hi")], "two"), chat(1, [user("*")], "three"))

    code, out, _ = run(capsys, "diff", "a", "b", "--format", "markdown")

    assert code == 1
    assert out.splitlines() == [
        "### `a` → `b`",
        "",
        "0 equal, 1 different, 0 only in a, 1 only in b",
        "",
        "`` #0 POST /v1/chat/completions  200  hi → one ``` <b> # x ``",
        "",
        "```diff",
        "@@ response.body.choices[0].message.content @@",
        '- "one ``\u200b` <b>\\n# x"',
        '+ "two"',
        "```",
        "",
        "Only in `b`:",
        "",
        "- `#1 POST /v1/chat/completions  200  * → three`",
    ]
