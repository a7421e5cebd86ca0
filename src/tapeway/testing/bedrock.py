"""Amazon Bedrock: converse and invoke, whole and as event streams. Signatures are not checked.

Frames of AWS's event stream encoding, with both of their checksums.
"""

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping

import orjson

from tapeway.testing.answer import (
    Headers,
    StandInAnswer,
    compact,
    stream,
    with_length,
    with_stream_fault,
)
from tapeway.testing.anthropic import messages as anthropic
from tapeway.testing.reply import (
    Conversation,
    PendingTurn,
    Reply,
    StandInState,
    pieces,
    reply_to,
    slices,
    tools_of,
)
from tapeway.testing.request import JsonObject, StandInRequest, at, objects_at, text_at

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_STRING = 7
_JSON = "application/json"
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_NO_CALL = (
    "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks of "
    "previous turn: {}."
)
_FAILURES = {
    400: ("ValidationException", "The stand-in was asked for this error."),
    401: ("AccessDeniedException", "Missing Authentication Token"),
    404: ("ResourceNotFoundException", "The model is not found."),
    424: ("ModelErrorException", "The request failed due to an error in the model."),
    429: ("ThrottlingException", "Too many requests, please wait before trying again."),
    503: ("ServiceUnavailableException", "The service is temporarily unable to handle it."),
}


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message: prelude with CRC, header fields, payload, and the CRC of the whole."""
    fields = b"".join(_field(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(fields) + len(payload), len(fields))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + fields + payload
    return message + struct.pack(">I", zlib.crc32(message))


def event(kind: str, payload: bytes) -> bytes:
    """An event of a type with a JSON payload."""
    return _json_frame("event", kind, payload)


def error_frame(kind: str, payload: bytes) -> bytes:
    """An exception in the midst of a stream."""
    return _json_frame("exception", kind, payload)


def _json_frame(message_type: str, kind: str, payload: bytes) -> bytes:
    return frame(
        {
            f":{message_type}-type": kind,
            ":content-type": "application/json",
            ":message-type": message_type,
        },
        payload,
    )


def _field(name: str, value: str) -> bytes:
    written, content = name.encode(), value.encode()
    return (
        struct.pack(">B", len(written))
        + written
        + struct.pack(">BH", _STRING, len(content))
        + content
    )


def headers(state: StandInState, content_type: str) -> Headers:
    """Header fields in the order and case they come in."""
    request_id = "-".join(state.new_id("", length) for length in (8, 4, 4, 4, 12))
    return (("Content-Type", content_type), ("x-amzn-RequestId", request_id))


def failure(
    status: int, call: StandInRequest, state: StandInState, message: str = ""
) -> StandInAnswer:
    """An error as AWS answers it: its type is in a header field."""
    kind, text = _FAILURES.get(status, ("InternalServerException", "Internal server error"))
    # A missing signature is 403 here, not 401.
    status = 403 if status == 401 else status
    fields = (*headers(state, _JSON), ("x-amzn-ErrorType", kind))
    return with_length(status, fields, compact({"message": message or text}))


def converse(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /model/{model}/converse."""
    reply = reply_to(call, _turn(call.json))
    body: JsonObject = {
        "metrics": {"latencyMs": 300 + int(state.token_hex(1), 16)},
        "output": {"message": {"content": _content(reply, state), "role": "assistant"}},
        "stopReason": _stop_reason(reply),
        "usage": _usage(call, reply),
    }
    return with_length(200, headers(state, _JSON), compact(body))


def converse_stream(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /model/{model}/converse-stream."""
    reply = reply_to(call, _turn(call.json))
    frames = [event(*_padded(kind, value)) for kind, value in _events(call, state, reply)]
    return _stream(call, state, frames)


def invoke(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /model/{model}/invoke, for Anthropic's models."""
    message = anthropic.message(call, state)
    used = at(message, "usage")
    counts = (
        ("X-Amzn-Bedrock-Input-Token-Count", str(at(used, "input_tokens"))),
        ("X-Amzn-Bedrock-Output-Token-Count", str(at(used, "output_tokens"))),
    )
    return with_length(200, headers(state, _JSON) + counts, compact(message))


def invoke_stream(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /model/{model}/invoke-with-response-stream: the model's own events in base64."""
    frames = [
        event(*_padded("chunk", {"bytes": base64.b64encode(compact(value)).decode()}))
        for value in anthropic.events(anthropic.message(call, state))
    ]
    return _stream(call, state, frames)


def _stream(call: StandInRequest, state: StandInState, frames: list[bytes]) -> StandInAnswer:
    error = error_frame(
        "modelStreamErrorException",
        compact({"message": "The model ended in an error.", "originalStatusCode": 500}),
    )
    return stream(headers(state, CONTENT_TYPE), with_stream_fault(call, frames, error))


def _padded(kind: str, value: JsonObject) -> tuple[str, bytes]:
    # The real service pads events to hide the length.
    length = len(compact(value)) % 23
    return kind, compact(value | {"p": _ALPHABET[: length + 1]})


def _turn(body: JsonObject) -> PendingTurn:
    conversation = Conversation(_NO_CALL)
    for message in objects_at(body, "messages"):
        for part in objects_at(message, "content"):
            if "toolUse" in part:
                conversation.called(text_at(part, "toolUse", "toolUseId"))
            elif "toolResult" in part:
                words = "".join(_words(one) for one in objects_at(part, "toolResult", "content"))
                conversation.answered(text_at(part, "toolResult", "toolUseId"), words)
            elif text_at(message, "role") == "user":
                conversation.said(text_at(part, "text"))
    offered = [at(tool, "toolSpec") for tool in objects_at(body, "toolConfig", "tools")]
    return conversation.turn(tools_of(offered, "inputSchema", "json"))


def _words(content: JsonObject) -> str:
    return text_at(content, "text") or orjson.dumps(at(content, "json")).decode()


def _content(reply: Reply, state: StandInState) -> list[JsonObject]:
    if not reply.calls:
        return [{"text": reply.text}]
    return [
        {
            "toolUse": {
                "input": wanted.arguments,
                "name": wanted.name,
                "toolUseId": state.new_id("tooluse_", 22),
            }
        }
        for wanted in reply.calls
    ]


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


def _usage(call: StandInRequest, reply: Reply) -> JsonObject:
    read = call.tokens
    written = reply.tokens
    return {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}


def _events(
    call: StandInRequest, state: StandInState, reply: Reply
) -> Iterator[tuple[str, JsonObject]]:
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(_content(reply, state)):
        where: JsonObject = {"contentBlockIndex": index}
        if "toolUse" in block:
            opening = {key: at(block, "toolUse", key) for key in ("name", "toolUseId")}
            yield "contentBlockStart", where | {"start": {"toolUse": opening}}
            written = orjson.dumps(at(block, "toolUse", "input")).decode()
            deltas: list[JsonObject] = [{"toolUse": {"input": part}} for part in slices(written)]
        else:
            deltas = [{"text": piece} for piece in pieces(text_at(block, "text"))]
        for delta in deltas:
            yield "contentBlockDelta", where | {"delta": delta}
        yield "contentBlockStop", where
    yield "messageStop", {"stopReason": _stop_reason(reply)}
    latency = 300 + int(state.token_hex(1), 16)
    yield "metadata", {"metrics": {"latencyMs": latency}, "usage": _usage(call, reply)}
