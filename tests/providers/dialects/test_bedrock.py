from tapeway.core.json_text import Json
from tapeway.providers.conversation import LeftOut, transcript
from tests.providers.dialogues import call, told

TARGET = "/model/m/converse"


def answer(*content: Json, stop: str = "end_turn") -> Json:
    message: Json = {"role": "assistant", "content": list(content)}
    return {"output": {"message": message}, "stopReason": stop}


def test_a_loop_with_tools_is_told_once() -> None:
    thought: Json = {"reasoningContent": {"reasoningText": {"text": "Hm"}}}
    used: Json = {"toolUse": {"toolUseId": "t", "name": "f", "input": {"x": 1}}}
    picture: Json = {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
    given: Json = {"toolResult": {"toolUseId": "t", "content": [{"json": {"a": 1}}, picture]}}
    history: list[Json] = [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [given, {"text": "and?"}, {"cachePoint": {}}]},
    ]
    system: Json = [{"text": "Be brief."}]
    calls = [
        call(
            *(0, TARGET, {"system": system, "messages": history[:1]}, answer(thought, used)),
            route="bedrock",
        ),
        call(
            *(1, TARGET, {"system": system, "messages": history}),
            answer({"text": "Once"}, stop="max_tokens"),
            route="bedrock",
        ),
    ]

    found = told(transcript(calls))

    assert isinstance(found[3], dict)
    assert str(found[3].pop("attachments")).startswith("[{'type': 'image', 'media_type': 'png', ")
    assert found == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm",
            "tool_calls": [{"id": "t", "name": "f", "arguments": {"x": 1}}],
        },
        {"role": "tool", "content": '{"a":1}', "tool_call_id": "t"},
        {"role": "user", "content": "and?", "attachments": [{"type": "cachePoint"}]},
        {
            "role": "assistant",
            "content": "Once",
            "notes": ["the answer did not come to its end: max_tokens"],
        },
    ]


def test_an_error_is_told_and_binary_streams_are_named_as_unread() -> None:
    asked: Json = {"messages": [{"role": "user", "content": [{"text": "go"}]}]}
    calls = [
        call(0, TARGET, asked, {"message": "Too many"}, route="bedrock", status=429),
        call(1, f"{TARGET}-stream", asked, b"", route="bedrock"),
    ]

    found = transcript(calls)

    assert found.messages[0].notes == ("interaction 0: the answer was an error, 429: Too many",)
    assert found.left_out == (
        LeftOut(1, "the conversations of bedrock's converse-stream are not read"),
    )
