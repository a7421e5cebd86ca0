"""Amazon Bedrock: converse and invoke, whole and as event streams. Signatures are not checked."""

import base64
from collections.abc import Iterator

import orjson

from tapeway.testing import anthropic, event_stream
from tapeway.testing.answer import Answer, Headers, compact, stream, whole
from tapeway.testing.call import Call
from tapeway.testing.json_tree import JsonObject, at, objects_at, text_at
from tapeway.testing.mishap import as_asked
from tapeway.testing.reply import Reply, Tool, Turn, pieces, reply_to, slices, tokens
from tapeway.testing.tool_results import ToolResults
from tapeway.testing.world import World

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


def headers(world: World, content_type: str) -> Headers:
    """Header fields in the order and case they come in."""
    request_id = "-".join(world.mint("", length) for length in (8, 4, 4, 4, 12))
    return (("Content-Type", content_type), ("x-amzn-RequestId", request_id))


def failure(status: int, call: Call, world: World, message: str = "") -> Answer:
    """An error as AWS answers it: its type stands in a header field."""
    kind, text = _FAILURES.get(status, ("InternalServerException", "Internal server error"))
    # A missing signature is 403 here, not 401.
    status = 403 if status == 401 else status
    fields = (*headers(world, _JSON), ("x-amzn-ErrorType", kind))
    return whole(status, fields, compact({"message": message or text}))


def converse(call: Call, world: World) -> Answer:
    """POST /model/{model}/converse."""
    reply = reply_to(call, _turn(call.json))
    body: JsonObject = {
        "metrics": {"latencyMs": 300 + int(world.token_hex(1), 16)},
        "output": {"message": {"content": _content(reply, world), "role": "assistant"}},
        "stopReason": _stop_reason(reply),
        "usage": _usage(call, reply),
    }
    return whole(200, headers(world, _JSON), compact(body))


def converse_stream(call: Call, world: World) -> Answer:
    """POST /model/{model}/converse-stream."""
    reply = reply_to(call, _turn(call.json))
    frames = [
        event_stream.event(*_padded(kind, value)) for kind, value in _events(call, world, reply)
    ]
    return _stream(call, world, frames)


def invoke(call: Call, world: World) -> Answer:
    """POST /model/{model}/invoke, for Anthropic's models."""
    message = anthropic.message(call, world)
    used = at(message, "usage")
    counts = (
        ("X-Amzn-Bedrock-Input-Token-Count", str(at(used, "input_tokens"))),
        ("X-Amzn-Bedrock-Output-Token-Count", str(at(used, "output_tokens"))),
    )
    return whole(200, headers(world, _JSON) + counts, compact(message))


def invoke_stream(call: Call, world: World) -> Answer:
    """POST /model/{model}/invoke-with-response-stream: the model's own events in base64."""
    frames = [
        event_stream.event(*_padded("chunk", {"bytes": base64.b64encode(compact(value)).decode()}))
        for value in anthropic.events(anthropic.message(call, world))
    ]
    return _stream(call, world, frames)


def _stream(call: Call, world: World, frames: list[bytes]) -> Answer:
    error = event_stream.failure(
        "modelStreamErrorException",
        compact({"message": "The model ended in an error.", "originalStatusCode": 500}),
    )
    return stream(headers(world, event_stream.CONTENT_TYPE), as_asked(call, frames, error))


def _padded(kind: str, value: JsonObject) -> tuple[str, bytes]:
    # The real service pads its events, so that their length tells nothing.
    length = len(compact(value)) % 23
    return kind, compact(value | {"p": _ALPHABET[: length + 1]})


def _turn(body: JsonObject) -> Turn:
    prompt, results = "", ToolResults(_NO_CALL)
    for message in objects_at(body, "messages"):
        for part in objects_at(message, "content"):
            if "toolUse" in part:
                results.called(text_at(part, "toolUse", "toolUseId"))
            elif "toolResult" in part:
                words = "".join(_words(one) for one in objects_at(part, "toolResult", "content"))
                results.answered(text_at(part, "toolResult", "toolUseId"), words)
            elif text_at(message, "role") == "user":
                prompt = text_at(part, "text")
                results.clear()
    tools = tuple(
        Tool(text_at(tool, "toolSpec", "name"), at(tool, "toolSpec", "inputSchema", "json"))
        for tool in objects_at(body, "toolConfig", "tools")
    )
    return Turn(prompt, tools, results.texts)


def _words(content: JsonObject) -> str:
    return text_at(content, "text") or orjson.dumps(at(content, "json")).decode()


def _content(reply: Reply, world: World) -> list[JsonObject]:
    if not reply.calls:
        return [{"text": reply.text}]
    return [
        {
            "toolUse": {
                "input": wanted.arguments,
                "name": wanted.name,
                "toolUseId": world.mint("tooluse_", 22),
            }
        }
        for wanted in reply.calls
    ]


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


def _usage(call: Call, reply: Reply) -> JsonObject:
    read = tokens(call.body.decode(errors="replace"))
    written = tokens(reply.text + "".join(wanted.name for wanted in reply.calls))
    return {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}


def _events(call: Call, world: World, reply: Reply) -> Iterator[tuple[str, JsonObject]]:
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(_content(reply, world)):
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
    latency = 300 + int(world.token_hex(1), 16)
    yield "metadata", {"metrics": {"latencyMs": latency}, "usage": _usage(call, reply)}
