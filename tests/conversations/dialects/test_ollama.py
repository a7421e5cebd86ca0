import pytest

from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tests.conversations.recorded_calls import call, messages_of, ndjson, user

NDJSON = b"application/x-ndjson"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_chat_is_listed(streamed: bool) -> None:
    made: Json = [{"function": {"name": "f", "arguments": {"x": 1}}}]
    asked: Json = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look", "images": ["iVBORw0KGgo="]},
            {"role": "assistant", "content": "", "tool_calls": made},
            {"role": "tool", "content": "1", "tool_name": "f"},
        ]
    }
    pieces: list[Json] = [
        {"message": {"role": "assistant", "thinking": "th"}},
        {"message": {"role": "assistant", "thinking": "ink"}},
        {"message": {"role": "assistant", "content": "Hel"}},
        {"message": {"role": "assistant", "content": "lo", "tool_calls": made}},
        {"created_at": "2026-11-21T20:35:14.1Z", "done": True, "done_reason": "length"},
    ]
    whole: Json = {
        "created_at": "2026-11-21T20:35:14.1Z",
        "message": {"content": "Hello", "thinking": "think", "tool_calls": made},
        "done_reason": "length",
    }
    answer = ndjson(pieces) if streamed else ndjson([whole])

    found = transcript([call(0, "/api/chat", asked, answer, route="ollama", media=NDJSON)])

    system, look, used, given, last = messages_of(found)
    assert system == {"role": "system", "content": "Be brief."}
    assert isinstance(look, dict)
    assert str(look["attachments"]).startswith("[{'type': 'image', 'bytes': 8,")
    assert used == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"name": "f", "arguments": {"x": 1}}],
    }
    assert given == {"role": "tool", "content": "1", "name": "f"}
    assert last == {
        "role": "assistant",
        "content": "Hello",
        "thinking": "think",
        "tool_calls": [{"name": "f", "arguments": {"x": 1}}],
        "notes": ["the answer is incomplete: length"],
    }
    assert found.messages[-1].at == "2026-11-21T20:35:14.100000+00:00"


def test_what_is_generated_is_an_answer_to_its_prompt() -> None:
    asked: Json = {"system": "Be brief.", "prompt": "Once"}
    pieces: list[Json] = [{"response": " upon"}, {"response": " a time", "done": True}]

    found = transcript(
        [call(0, "/api/generate", asked, ndjson(pieces), route="ollama", media=NDJSON)]
    )

    assert messages_of(found) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Once"},
        {"role": "assistant", "content": " upon a time"},
    ]


def test_an_error_is_noted() -> None:
    asked: Json = {"messages": [user("hi")]}
    error: Json = {"error": "model 'x' not found"}

    found = messages_of(
        transcript([call(0, "/api/chat", asked, error, route="ollama", status=404)])
    )

    assert found == [
        {
            "role": "user",
            "content": "hi",
            "notes": ["interaction 0: the answer was an error, 404: model 'x' not found"],
        }
    ]
