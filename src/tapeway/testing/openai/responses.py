"""OpenAI's Responses API, whole and streamed; answers are kept for `previous_response_id`."""

from collections.abc import Iterator
from itertools import count

import orjson

from tapeway.testing.answer import StandInAnswer
from tapeway.testing.openai import envelope
from tapeway.testing.reply import (
    Conversation,
    InvalidToolResult,
    PendingTurn,
    Reply,
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
    list_at,
    objects_at,
    text_at,
)

NOT_FOUND = "Previous response with id '{}' not found."
_NO_CALL = "No tool call found for function call output with call_id {}."
_ERROR: JsonObject = {
    "type": "error",
    "error": {
        "type": "server_error",
        "code": "server_error",
        "message": "The server had an error while processing your request. Sorry about that!",
        "param": None,
    },
}


def create(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/responses."""
    previous = text_at(call.json, "previous_response_id")
    if previous and previous not in state.documents:
        raise InvalidToolResult(NOT_FOUND.format(previous))
    response, kept = answered(call, state, state.documents.get(previous))
    state.documents[text_at(response, "id")] = kept
    if at(call.json, "stream") is True:
        events = [envelope.event(event) for event in numbered(events_of(response))]
        return envelope.streamed(call, state, events, next(numbered(iter([_ERROR]))))
    return envelope.answer(response, state)


def answered(
    call: StandInRequest, state: StandInState, before: JsonObject | None
) -> tuple[JsonObject, JsonObject]:
    """The response to a request, and the state to keep for the next. `before` is the last state."""
    items = [*list_at(before, "conversation"), *_input(call.json)]
    if at(call.json, "generate") is False:
        response = _response(call, state, [], Reply(""))
        return response, {"conversation": items, "response": response}
    reply = reply_to(call, _turn(call.json, items, state))
    output = [*_reasoning(call.json, state), *_output(reply, state)]
    response = _response(call, state, output, reply)
    return response, {"conversation": [*items, *output], "response": response}


def retrieve(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/responses/{id}."""
    stored = at(state.documents.get(call.params["id"]), "response")
    if stored is None:
        message = f"Response with id '{call.params['id']}' not found."
        return envelope.failure(404, call, state, message)
    return envelope.answer(stored, state)


def _input(body: JsonObject) -> list[object]:
    words = text_at(body, "input")
    return [{"role": "user", "content": words}] if words else list_at(body, "input")


def _turn(body: JsonObject, items: list[object], state: StandInState) -> PendingTurn:
    conversation = Conversation(_NO_CALL)
    for item in objects_at({"items": items}, "items"):
        if text_at(item, "role") == "user":
            conversation.said(content_text(item))
        elif text_at(item, "type") == "function_call":
            conversation.called(text_at(item, "call_id"))
        elif text_at(item, "type") == "function_call_output":
            conversation.answered(text_at(item, "call_id"), text_at(item, "output"))
        elif text_at(item, "type") == "reasoning":
            _check_reasoning(item, state)
    offered = () if at(body, "tool_choice") == "none" else objects_at(body, "tools")
    return conversation.turn(tools_of(offered, "parameters"), at(body, "text", "format", "schema"))


def _reasoning(body: JsonObject, state: StandInState) -> Iterator[JsonObject]:
    if at(body, "reasoning", "effort") is None:
        return
    item: JsonObject = {"id": state.new_id("rs_", 48), "type": "reasoning", "summary": []}
    if "reasoning.encrypted_content" in list_at(body, "include"):
        item["encrypted_content"] = state.new_id("gAAAAAB", 200)
    state.documents[text_at(item, "id")] = item
    yield item


def _check_reasoning(item: JsonObject, state: StandInState) -> None:
    stored = state.documents.get(text_at(item, "id"))
    if stored is None or at(stored, "encrypted_content") != at(item, "encrypted_content"):
        raise InvalidToolResult("The encrypted content could not be verified.")


def _output(reply: Reply, state: StandInState) -> list[JsonObject]:
    if reply.calls:
        return [
            {
                "id": state.new_id("fc_", 48),
                "type": "function_call",
                "status": "completed",
                "arguments": orjson.dumps(wanted.arguments).decode(),
                "call_id": state.new_id("call_"),
                "name": wanted.name,
            }
            for wanted in reply.calls
        ]
    return [
        {
            "id": state.new_id("msg_", 48),
            "type": "message",
            "status": "completed",
            "content": [_text_part(reply.text)],
            "role": "assistant",
        }
    ]


def _text_part(text: str) -> JsonObject:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _response(
    call: StandInRequest, state: StandInState, output: list[JsonObject], reply: Reply
) -> JsonObject:
    body = call.json
    return {
        "id": state.new_id("resp_", 48),
        "object": "response",
        "created_at": state.seconds(),
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": at(body, "instructions"),
        "max_output_tokens": at(body, "max_output_tokens"),
        "max_tool_calls": None,
        "model": call.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": at(body, "previous_response_id"),
        "prompt_cache_key": at(body, "prompt_cache_key"),
        "reasoning": {"effort": at(body, "reasoning", "effort"), "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": at(body, "text") or {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": at(body, "tool_choice") or "auto",
        "tools": list_at(body, "tools"),
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(call, reply),
        "user": None,
        "metadata": at(body, "metadata") or {},
    }


def _usage(call: StandInRequest, reply: Reply) -> JsonObject:
    read = call.tokens
    written = reply.tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def numbered(events: Iterator[JsonObject]) -> Iterator[JsonObject]:
    """The events of one response, numbered."""
    numbers = count()
    for event in events:
        yield {"type": text_at(event, "type"), "sequence_number": next(numbers)} | event


def events_of(response: JsonObject) -> Iterator[JsonObject]:
    """The events of a streamed response, not yet numbered."""
    begun = response | {"status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(objects_at(response, "output")):
        where: JsonObject = {"item_id": text_at(item, "id"), "output_index": index}
        if text_at(item, "type") == "function_call":
            yield from _function_call_events(index, item, where)
        elif text_at(item, "type") == "message":
            yield from _message_events(index, item, where)
        else:
            yield _item_event("added", index, item)
            yield _item_event("done", index, item)
    yield {"type": "response.completed", "response": response}


def _item_event(kind: str, index: int, item: JsonObject) -> JsonObject:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}


def _function_call_events(index: int, item: JsonObject, where: JsonObject) -> Iterator[JsonObject]:
    arguments = text_at(item, "arguments")
    kind = "response.function_call_arguments"
    yield _item_event("added", index, item | {"status": "in_progress", "arguments": ""})
    for part in slices(arguments):
        yield {"type": f"{kind}.delta"} | where | {"delta": part, "obfuscation": "x" * len(part)}
    yield {"type": f"{kind}.done"} | where | {"arguments": arguments}
    yield _item_event("done", index, item)


def _message_events(index: int, item: JsonObject, where: JsonObject) -> Iterator[JsonObject]:
    where = where | {"content_index": 0}
    text = text_at(item, "content", 0, "text")
    yield _item_event("added", index, item | {"status": "in_progress", "content": []})
    yield {"type": "response.content_part.added"} | where | {"part": _text_part("")}
    for piece in pieces(text):
        delta: JsonObject = {"delta": piece, "logprobs": [], "obfuscation": "x" * 8}
        yield {"type": "response.output_text.delta"} | where | delta
    yield {"type": "response.output_text.done"} | where | {"text": text, "logprobs": []}
    yield {"type": "response.content_part.done"} | where | {"part": _text_part(text)}
    yield _item_event("done", index, item)
