"""OpenAI's chat completions, whole and streamed."""

from collections.abc import Sequence

import orjson

from tapeway.testing.answer import StandInAnswer
from tapeway.testing.openai import envelope
from tapeway.testing.reply import (
    Conversation,
    PendingTurn,
    Reply,
    StandInState,
    ToolCall,
    function_tools,
    pieces,
    reply_to,
    slices,
)
from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    content_text,
    int_at,
    objects_at,
    text_at,
)

DONE = b"data: [DONE]\n\n"
_WAITING = b": OPENROUTER PROCESSING\n\n"
_NO_CALL = (
    "Invalid parameter: 'tool_call_id' of '{}' not found in 'tool_calls' of previous message."
)


def complete(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/chat/completions.

    Streams at OpenRouter's path carry OpenRouter's comments. A model whose name begins with `crlf`
    ends lines with CRLF.
    """
    reply = reply_to(call, _turn(call.json))
    head = _head(call, state)
    if at(call.json, "stream") is True:
        events = _as_provider_streams(call, _events(call, state, head, reply))
        return envelope.streamed(call, state, events, envelope.error_body(500))
    body: JsonObject = head | {
        "object": "chat.completion",
        "choices": [
            _choice(index, reply, state) for index in range(int_at(call.json, "n", default=1))
        ],
        "usage": _usage(call, reply),
        "service_tier": "default",
        "system_fingerprint": "fp_standin000",
    }
    return envelope.answer(body, state)


def _as_provider_streams(call: StandInRequest, events: Sequence[bytes]) -> Sequence[bytes]:
    if call.path.startswith("/api/v1/"):
        # OpenRouter sends comments to keep the connection open while it waits for a provider.
        events = [_WAITING, *events[:1], _WAITING, *events[1:]]
    if call.model.startswith("crlf"):
        events = [event.replace(b"\n", b"\r\n") for event in events]
    return events


def _head(call: StandInRequest, state: StandInState) -> JsonObject:
    return {
        "id": state.new_id("chatcmpl-", 29),
        "object": "chat.completion.chunk",
        "created": state.seconds(),
        "model": call.model,
    }


def _turn(body: JsonObject) -> PendingTurn:
    conversation = Conversation(_NO_CALL)
    for message in objects_at(body, "messages"):
        if text_at(message, "role") == "user":
            conversation.said(content_text(message))
        elif text_at(message, "role") == "tool":
            conversation.answered(text_at(message, "tool_call_id"), content_text(message))
        for call in objects_at(message, "tool_calls"):
            conversation.called(text_at(call, "id"))
    tools = () if at(body, "tool_choice") == "none" else function_tools(body)
    schema = at(body, "response_format", "json_schema", "schema")
    return conversation.turn(tools, schema)


def _choice(index: int, reply: Reply, state: StandInState) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": None if reply.calls else reply.text}
    if reply.calls:
        message["tool_calls"] = [_tool_call(call, state) for call in reply.calls]
    return {
        "index": index,
        "message": message | {"refusal": None, "annotations": []},
        "logprobs": None,
        "finish_reason": _finish(reply),
    }


def _tool_call(wanted: ToolCall, state: StandInState) -> JsonObject:
    function = {"name": wanted.name, "arguments": orjson.dumps(wanted.arguments).decode()}
    return {"id": state.new_id("call_"), "type": "function", "function": function}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(call: StandInRequest, reply: Reply) -> JsonObject:
    prompt = call.tokens
    completion = reply.tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _events(
    call: StandInRequest, state: StandInState, head: JsonObject, reply: Reply
) -> list[bytes]:
    head = head | {"service_tier": "default", "system_fingerprint": "fp_standin000"}
    with_usage = at(call.json, "stream_options", "include_usage") is True
    usage: JsonObject = {"usage": None} if with_usage else {}
    events = [
        envelope.event(head | {"choices": [choice]} | usage | {"obfuscation": state.new_id("", 8)})
        for index in range(int_at(call.json, "n", default=1))
        for choice in _choice_deltas(index, reply, state)
    ]
    if with_usage:
        last = head | {"choices": [], "usage": _usage(call, reply)}
        events.append(envelope.event(last | {"obfuscation": ""}))
    return [*events, DONE]


def _choice_deltas(index: int, reply: Reply, state: StandInState) -> list[JsonObject]:
    deltas = _call_deltas(reply.calls, state) if reply.calls else _text_deltas(reply.text)
    choices: list[JsonObject] = [
        {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        for delta in deltas
    ]
    last: JsonObject = {"index": index, "delta": {}, "logprobs": None}
    return [*choices, last | {"finish_reason": _finish(reply)}]


def _text_deltas(text: str) -> list[JsonObject]:
    first: JsonObject = {"role": "assistant", "content": "", "refusal": None}
    rest: list[JsonObject] = [{"content": piece} for piece in pieces(text)]
    return [first, *rest]


def _call_deltas(calls: tuple[ToolCall, ...], state: StandInState) -> list[JsonObject]:
    deltas: list[JsonObject] = [{"role": "assistant", "content": None}]
    for index, wanted in enumerate(calls):
        opening = _tool_call(ToolCall(wanted.name, {}), state)
        opening["function"] = {"name": wanted.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index} | opening]})
        arguments = orjson.dumps(wanted.arguments).decode()
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in slices(arguments)
        ]
    return deltas
