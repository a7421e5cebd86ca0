"""Anthropic's messages, whole and streamed."""

import base64
from collections.abc import Callable, Iterator

import orjson

from tapeway.testing.answer import (
    StandInAnswer,
    compact,
    stream,
    with_stream_fault,
)
from tapeway.testing.anthropic.envelope import FAILURES, answer, headers
from tapeway.testing.reply import (
    Conversation,
    InvalidToolResult,
    PendingTurn,
    StandInState,
    pieces,
    reply_to,
    slices,
    tools_of,
)
from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    content_text,
    objects_at,
    text_at,
    tokens,
)

_NO_CALL = (
    "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each "
    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
)


def list_models(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/models of a client that sends `anthropic-version`."""
    model: JsonObject = {
        "type": "model",
        "id": "claude-sonnet-5",
        "display_name": "Claude Sonnet 5",
        "created_at": "2026-06-30T00:00:00Z",
    }
    ends: JsonObject = {"first_id": model["id"], "last_id": model["id"], "has_more": False}
    return answer({"data": [model]} | ends, state)


def count_tokens(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/messages/count_tokens."""
    counted = {"input_tokens": call.tokens}
    return answer(counted, state)


def create(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/messages."""
    made = message(call, state)
    if at(call.json, "stream") is True:
        written = [_event(value) for value in events(made)]
        fields = headers(state, "text/event-stream; charset=utf-8")
        return stream(fields, with_stream_fault(call, written, _overloaded()))
    return answer(made, state)


def _turn(body: JsonObject, state: StandInState) -> PendingTurn:
    conversation = Conversation(_NO_CALL)
    for message in objects_at(body, "messages"):
        for thought in _parts(message, "thinking"):
            if text_at(thought, "signature") not in state.documents:
                raise InvalidToolResult(
                    "messages.1.content.0: Invalid `signature` in `thinking` block"
                )
        for used in _parts(message, "tool_use"):
            conversation.called(text_at(used, "id"))
        if text_at(message, "role") != "user":
            continue
        for part in _parts(message, "tool_result"):
            conversation.answered(text_at(part, "tool_use_id"), content_text(part))
        if words := content_text(message):
            conversation.said(words)
    offered = () if at(body, "tool_choice", "type") == "none" else objects_at(body, "tools")
    schema = at(body, "output_config", "format", "schema")
    return conversation.turn(tools_of(offered, "input_schema"), schema)


def _parts(message: JsonObject, kind: str) -> Iterator[JsonObject]:
    return (part for part in objects_at(message, "content") if text_at(part, "type") == kind)


def message(call: StandInRequest, state: StandInState) -> JsonObject:
    """The model's answer as one message."""
    reply = reply_to(call, _turn(call.json, state))
    blocks: list[JsonObject] = [
        {
            "type": "tool_use",
            "id": state.new_id("toolu_01", 22),
            "name": wanted.name,
            "input": wanted.arguments,
        }
        for wanted in reply.calls
    ]
    text = "Let me look that up — one moment." if blocks else reply.text
    return {
        "model": call.model,
        "id": state.new_id("msg_01", 22),
        "type": "message",
        "role": "assistant",
        "content": [*_thoughts(call, state), {"type": "text", "text": text}, *blocks],
        "stop_reason": "tool_use" if blocks else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": call.tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": tokens(text + "".join(wanted.name for wanted in reply.calls)),
            "service_tier": "standard",
        },
    }


def _thoughts(call: StandInRequest, state: StandInState) -> Iterator[JsonObject]:
    if text_at(call.json, "thinking", "type") not in ("enabled", "adaptive"):
        return
    signature = base64.b64encode(bytes.fromhex(state.new_id("", 160))).decode()
    state.documents[signature] = {}
    thought = "They want to know; let me think — naïvely."
    yield {"type": "thinking", "thinking": thought, "signature": signature}


def events(message: JsonObject) -> Iterator[JsonObject]:
    """The events that bring a message piece by piece."""
    usage = at(message, "usage")
    opening_usage = usage | {"output_tokens": 1} if isinstance(usage, dict) else {}
    opening = message | {"content": [], "stop_reason": None, "usage": opening_usage}
    yield {"type": "message_start", "message": opening}
    for index, block in enumerate(objects_at(message, "content")):
        yield from _block_events(index, block)
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    counted = {"output_tokens": at(usage, "output_tokens")}
    yield {"type": "message_delta", "delta": stop, "usage": counted}
    yield {"type": "message_stop"}


def _block_events(index: int, block: JsonObject) -> Iterator[JsonObject]:
    nothing, deltas = _BLOCKS[text_at(block, "type")]
    yield {"type": "content_block_start", "index": index, "content_block": block | nothing}
    if index == 0:
        yield {"type": "ping"}
    for delta in deltas(block):
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _text_deltas(block: JsonObject) -> Iterator[JsonObject]:
    for piece in pieces(text_at(block, "text")):
        yield {"type": "text_delta", "text": piece}


def _input_deltas(block: JsonObject) -> Iterator[JsonObject]:
    written = orjson.dumps(block["input"]).decode()
    for part in ["", *slices(written)]:
        yield {"type": "input_json_delta", "partial_json": part}


def _thinking_deltas(block: JsonObject) -> Iterator[JsonObject]:
    for piece in pieces(text_at(block, "thinking")):
        yield {"type": "thinking_delta", "thinking": piece}
    yield {"type": "signature_delta", "signature": block["signature"]}


_BLOCKS: dict[str, tuple[JsonObject, Callable[[JsonObject], Iterator[JsonObject]]]] = {
    "text": ({"text": ""}, _text_deltas),
    "tool_use": ({"input": {}}, _input_deltas),
    "thinking": ({"thinking": "", "signature": ""}, _thinking_deltas),
}


def _event(value: JsonObject) -> bytes:
    name = text_at(value, "type").encode()
    if name == b"ping":
        return b'event: ping\ndata: {"type": "ping"}\n\n'
    data = compact(value)
    # The real service pads its events with blanks, so that their length tells nothing.
    padding = b" " * (len(data) % 12)
    return b"event: " + name + b"\ndata: " + data[:-1] + padding + b"}\n\n"


def _overloaded() -> bytes:
    kind, text = FAILURES[529]
    return _event({"type": "error", "error": {"type": kind, "message": text}})
