"""Results of tools in each dialect: whose result it is, whether the tool failed, what it cost."""

from base64 import b64encode
from typing import Any

import pytest

from tapeway.conversations.model import ContentPart, tool_result
from tapeway.conversations.reader import parse_request
from tapeway.conversations.turns import CassetteTurns, read_calls, turns
from tapeway.core.model.interaction import Interaction
from tapeway.core.text import readable_json
from tapeway.providers.prices import PriceTable
from tests.conversations.recorded_calls import CHAT, DATE, MESSAGES, RESPONSES, call, chat, user
from tests.web.recorded import png

GEMINI = "/v1beta/models/gemini-2.5-flash:generateContent"
PICTURE = b64encode(png()).decode()
ERROR = '{"error": "no such city"}'


def openai(result: str) -> Interaction:
    function = {"name": "look", "arguments": "{}"}
    made = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
    given = {"role": "tool", "tool_call_id": "c", "content": result}
    return chat(0, [user("a"), made, given], "ok")


def responses(result: str) -> Interaction:
    made = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "c", "output": result}
    return call(0, RESPONSES, {"input": [made, given]}, {})


def anthropic(result: str) -> Interaction:
    made = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    given: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": result.removeprefix("!"),
    }
    given |= {"is_error": True} if result.startswith("!") else {}
    messages = [{"role": "assistant", "content": [made]}, {"role": "user", "content": [given]}]
    return call(0, MESSAGES, {"messages": messages}, {}, route="anthropic")


def gemini(result: str) -> Interaction:
    response = {"error" if result.startswith("!") else "output": result}
    contents = [
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": response}}]},
    ]
    return call(0, GEMINI, {"contents": contents}, {}, route="gemini")


def bedrock(result: str) -> Interaction:
    given = {"toolUseId": "c", "content": [{"text": result.removeprefix("!")}]}
    given |= {"status": "error"} if result.startswith("!") else {}
    messages = [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "look"}}]},
        {"role": "user", "content": [{"toolResult": given}]},
    ]
    return call(0, "/model/m/converse", {"messages": messages}, {}, route="bedrock")


def ollama(result: str) -> Interaction:
    made = {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}
    messages = [user("a"), made, {"role": "tool", "content": result}]
    return call(0, "/api/chat", {"model": "m", "messages": messages}, {}, route="ollama")


def result_of(item: Interaction) -> ContentPart:
    asked = parse_request(item.request)
    assert asked is not None
    (found,) = [part for turn in asked.turns for part in turn.parts if part.kind == "result"]
    return found


@pytest.mark.parametrize(
    ("dialect", "failure"),
    [
        (openai, ERROR),
        (responses, "An error occurred while running the tool. Please try again."),
        (anthropic, "!no such city"),
        (gemini, "!no such city"),
        (bedrock, "!no such city"),
        (ollama, "Error: no such city"),
    ],
)
def test_a_result_has_the_name_of_its_tool_and_says_whether_it_failed(
    dialect: Any, failure: str
) -> None:
    good, bad = result_of(dialect("sunny")), result_of(dialect(failure))

    assert (good.name, good.failed, bad.name, bad.failed) == ("look", False, "look", True)


@pytest.mark.parametrize(
    "text", ["", "errors are none", '{"error": null}', '{"error": ""}', '["error"]', '{"error"']
)
def test_a_result_that_tells_of_no_failure_is_none(text: str) -> None:
    assert not tool_result(text).failed


@pytest.mark.parametrize(
    "item",
    [
        chat(0, [{"role": "tool", "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}]}], ""),
        call(0, RESPONSES, {"input": [{"type": "computer_call_output", "call_id": "c", "output": {
            "type": "computer_screenshot", "image_url": f"data:image/svg+xml;base64,{PICTURE}"}}]}, {}),
        call(0, MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image", "source": {
            "type": "base64", "media_type": "text/html", "data": PICTURE}}]}]}, {}, route="anthropic"),
        call(0, GEMINI, {"contents": [{"parts": [
            {"inlineData": {"mimeType": "image/png", "data": PICTURE}}]}]}, {}, route="gemini"),
        call(0, "/model/m/converse", {"messages": [{"role": "user", "content": [
            {"image": {"format": "png", "source": {"bytes": PICTURE}}}]}]}, {}, route="bedrock"),
        call(0, "/api/chat", {"messages": [
            {"role": "user", "content": "", "images": [PICTURE]}]}, {}, route="ollama"),
    ],
)  # fmt: skip
def test_a_picture_is_found_in_each_dialect_by_its_bytes(item: Interaction) -> None:
    asked = parse_request(item.request)

    assert asked is not None
    pictures = [part.data for turn in asked.turns for part in turn.parts if part.data]
    assert pictures == [f"data:image/png;base64,{PICTURE}"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'{"t": "12\u00b0C \ud83d\ude00"}', '{"t": "12°C 😀"}'),
        (r'{"t": "a\u000ab \ud83d \u202e"}', r'{"t": "a\u000ab \ud83d \u202e"}'),
        (r'["\\u00b0"]', r'["\\u00b0"]'),
        (r"print('\u00b0')", r"print('\u00b0')"),
    ],
)
def test_escapes_of_json_are_shown_as_texts(text: str, shown: str) -> None:
    assert readable_json(text) == shown


def test_a_call_has_its_result_and_what_the_result_added_to_the_next_prompt() -> None:
    function = {"name": "look", "arguments": '{"city": "Paris"}'}
    made = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
    given = {"role": "tool", "tool_call_id": "c", "content": ERROR}
    found = read(
        timed(0, [user("a")], made, 100, "Sat, 21 Nov 2026 20:35:14 GMT"),
        timed(1, [user("a"), made, given], {"content": "ok"}, 150, "Sat, 21 Nov 2026 20:35:19 GMT"),
    )

    (step,) = found.turns[0].calls
    assert (step.call, step.result, step.failed) == ("look(city=Paris)", ERROR, True)
    assert (step.answered_in, step.tokens, step.ms) == (1, 40, 5000)
    assert step.usd == pytest.approx(40 * 2.5 / 1_000_000)
    assert found.turns[1].says == {"asked": "", "answered": "ok"}


def test_a_result_of_a_call_that_the_service_keeps_has_the_name_of_its_tool() -> None:
    made = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "c", "output": "sunny"}
    found = read(
        call(0, RESPONSES, {"input": "a"}, {"object": "response", "id": "r", "output": [made]}),
        call(1, RESPONSES, {"input": [given], "previous_response_id": "r"}, {}),
    )

    assert [result.name for result in found.largest_results] == ["look"]
    assert [step.result for step in found.turns[0].calls] == ["sunny"]


def test_a_turn_that_failed_says_why() -> None:
    found = read(chat(0, [user("a")], "", status=500))

    assert found.turns[0].document["error"] == "the answer was an error, 500"


def test_a_result_that_no_turn_brings_is_not_known() -> None:
    made = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look"}}]}

    (step,) = read(timed(0, [user("a")], made, 100, "")).turns[0].calls

    assert (step.result, step.tokens, step.usd, step.ms) == (None, None, None, None)


def timed(index: int, messages: list[Any], answer: Any, tokens: int, at: str) -> Interaction:
    """A call of gpt-4o that was answered at a time, with 10 tokens."""
    value = {
        "choices": [{"index": 0, "message": {"role": "assistant", **answer}}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10},
    }
    more = ((DATE[0], at.encode()),) if at else ()
    return call(index, CHAT, {"model": "gpt-4o", "messages": messages}, value, more=more)


def read(*items: Interaction) -> CassetteTurns:
    return turns(read_calls(items), PriceTable())
