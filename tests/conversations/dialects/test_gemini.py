import json

import pytest

from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tests.conversations.recorded_calls import call, lines, messages_of, sse

ONE, STREAM = "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent"


def content(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": list(parts)}


def answer(*parts: Json, finish: str = "STOP") -> Json:
    return {"candidates": [{"content": content("model", *parts), "finishReason": finish}]}


def test_a_loop_with_functions_is_listed_once() -> None:
    used: Json = {"functionCall": {"name": "f", "args": {"x": 1}}}
    given: Json = {"functionResponse": {"name": "f", "response": {"result": 2}}}
    history = [content("user", {"text": "go"}), content("model", used), content("user", given)]
    system: Json = {"parts": [{"text": "Be brief."}]}
    calls = [
        call(
            *(0, ONE, {"systemInstruction": system, "contents": history[:1]}, answer(used)),
            route="gemini",
        ),
        call(
            *(1, ONE, {"system_instruction": system, "contents": [*history]}),
            answer({"text": "Hm", "thought": True}, {"text": "done"}),
            route="gemini",
        ),
    ]

    assert messages_of(transcript(calls)) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "f", "arguments": {"x": 1}}],
        },
        {"role": "tool", "content": '{"result":2}', "name": "f"},
        {"role": "assistant", "content": "done", "thinking": "Hm"},
    ]


@pytest.mark.parametrize("array", [True, False])
def test_a_stream_is_one_answer_however_it_is_sent_back(array: bool) -> None:
    pieces: list[Json] = [answer({"text": text}, finish="") for text in ("Hel", "lo")]
    body = json.dumps(pieces).encode() if array else sse(pieces)
    media = b"application/json" if array else b"text/event-stream"
    contents: list[Json] = [
        content("user", {"text": "hi"}),
        content("model", {"text": "Hel"}),
        content("model", {"text": "lo"}),
        content("user", {"text": "more"}),
    ]
    calls = [
        call(0, STREAM, {"contents": contents[:1]}, body, route="gemini", media=media),
        call(1, ONE, {"contents": contents}, answer({"text": "x"}), route="gemini"),
    ]

    assert lines(*calls) == ["0 user: hi", "0 assistant: Hello", "0 user: more", "0 assistant: x"]


def test_content_that_is_no_text_is_an_attachment() -> None:
    parts: list[Json] = [
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
        {"file_data": {"mime_type": "video/mp4", "file_uri": "https://x.test/v"}},
        {"executableCode": {"code": "1"}},
    ]
    asked: Json = {"contents": [content("user", *parts)]}

    found = messages_of(transcript([call(0, ONE, asked, answer({"text": "x"}), route="gemini")]))[0]

    assert isinstance(found, dict)
    assert isinstance(found["attachments"], list)
    image, video, code = found["attachments"]
    assert isinstance(image, dict)
    assert (image["type"], image["media_type"], image["bytes"]) == ("image", "image/png", 8)
    assert video == {"type": "video", "media_type": "video/mp4", "url": "https://x.test/v"}
    assert code == {"type": "executableCode"}


def test_a_refused_prompt_and_an_unfinished_answer_say_so() -> None:
    asked: Json = {"contents": [content("user", {"text": "hi"})]}
    blocked: Json = {"promptFeedback": {"blockReason": "SAFETY"}}
    found = [
        messages_of(transcript([call(0, ONE, asked, response, route="gemini")]))[-1]
        for response in (blocked, answer({"text": "Once"}, finish="MAX_TOKENS"))
    ]

    assert found == [
        {
            "role": "user",
            "content": "hi",
            "notes": ["interaction 0: the answer is incomplete: SAFETY"],
        },
        {
            "role": "assistant",
            "content": "Once",
            "notes": ["the answer is incomplete: MAX_TOKENS"],
        },
    ]
