"""Google's Gemini API: generateContent whole, as server-sent events and as a JSON array."""

import base64
from collections.abc import Iterator

import orjson

from tapeway.testing.answer import (
    Headers,
    StandInAnswer,
    in_two_chunks,
    pretty,
    spaced,
    stream,
    with_length,
    with_stream_fault,
)
from tapeway.testing.reply import (
    Conversation,
    PendingTurn,
    Reply,
    StandInState,
    Tool,
    pieces,
    reply_to,
    vector,
)
from tapeway.testing.request import JsonObject, StandInRequest, at, int_at, objects_at, text_at

_JSON = "application/json; charset=UTF-8"
_DIMENSIONS = 768
_NO_CALL = "Please ensure that function response {} comes right after its function call turn."
_FAILURES = {
    400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    401: ("UNAUTHENTICATED", "API keys are not supported by this API. Expected OAuth2 access token."),
    403: ("PERMISSION_DENIED", "Method doesn't allow unregistered callers."),
    404: ("NOT_FOUND", "The model is not found for API version v1beta."),
    429: ("RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
}  # fmt: skip


def headers(state: StandInState, content_type: str) -> Headers:
    """Header fields as Google's front end sends them, `Vary` three times."""
    return (
        ("Content-Type", content_type),
        ("Vary", "Origin"),
        ("Vary", "X-Origin"),
        ("Vary", "Referer"),
        ("Server", "scaffolding on HTTPServer2"),
        ("X-XSS-Protection", "0"),
        ("X-Frame-Options", "SAMEORIGIN"),
        ("X-Content-Type-Options", "nosniff"),
        ("Server-Timing", f"gfet4t7; dur={300 + int(state.token_hex(1), 16)}"),
        ("Alt-Svc", 'h3=":443"; ma=2592000,h3-29=":443"; ma=2592000'),
    )


def _answer(body: object, state: StandInState) -> StandInAnswer:
    return in_two_chunks(200, headers(state, _JSON), pretty(body))


def failure(
    status: int, call: StandInRequest, state: StandInState, message: str = ""
) -> StandInAnswer:
    """An error as Google answers it; inside an array where the call asked for one."""
    # A missing key is 403 here, not 401.
    status = 403 if status == 401 else status
    body = _error(status, message)
    as_array = call.path.endswith(":streamGenerateContent") and call.query.get("alt") != "sse"
    return with_length(status, headers(state, _JSON), pretty([body] if as_array else body))


def _error(status: int, message: str = "") -> JsonObject:
    name, text = _FAILURES.get(status, ("INTERNAL", "An internal error has occurred."))
    error: JsonObject = {"code": status, "message": message or text, "status": name}
    if status == 429:
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}
        error["details"] = [retry]
    return {"error": error}


def generate(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST …/models/{model}:generateContent."""
    reply = reply_to(call, _turn(call.json))
    body = _chunk(call, state.new_id("", 22), _parts(call, reply, state), reply, last=True)
    return _answer(body, state)


def stream_generate(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST …/models/{model}:streamGenerateContent, with `?alt=sse` or as a JSON array."""
    chunks = list(_chunks(call, state))
    if call.query.get("alt") == "sse":
        events = [_event(chunk) for chunk in chunks]
        error = _event(_error(503))
        return stream(headers(state, "text/event-stream"), with_stream_fault(call, events, error))
    items = [pretty(chunk).rstrip(b"\n") for chunk in chunks]
    opened = [b"[" + items[0], *(b",\r\n" + item for item in items[1:]), b"]"]
    return stream(headers(state, _JSON), opened)


def _event(value: JsonObject) -> bytes:
    return b"data: " + spaced(value) + b"\r\n\r\n"


def _turn(body: JsonObject) -> PendingTurn:
    conversation, last_called = Conversation(_NO_CALL), dict[str, str]()
    for content in objects_at(body, "contents"):
        for part in objects_at(content, "parts"):
            if "functionCall" in part:
                call_id = text_at(part, "functionCall", "id")
                last_called[text_at(part, "functionCall", "name")] = call_id
                conversation.called(call_id)
            elif "functionResponse" in part:
                name = text_at(part, "functionResponse", "name")
                # Older clients send no id back; then the function's name has to do.
                call_id = text_at(part, "functionResponse", "id") or last_called.get(name, "")
                answered = orjson.dumps(at(part, "functionResponse", "response")).decode()
                conversation.answered(call_id, answered)
            elif text_at(content, "role") != "model" and text_at(part, "text"):
                conversation.said(text_at(part, "text"))
    config = at(body, "generationConfig")
    schema = at(config, "responseJsonSchema") or at(config, "responseSchema")
    return conversation.turn(_tools(body), schema)


def _tools(body: JsonObject) -> tuple[Tool, ...]:
    if at(body, "toolConfig", "functionCallingConfig", "mode") == "NONE":
        return ()
    return tuple(
        Tool(
            text_at(declaration, "name"),
            at(declaration, "parametersJsonSchema") or at(declaration, "parameters"),
        )
        for group in objects_at(body, "tools")
        for declaration in objects_at(group, "functionDeclarations")
    )


def _parts(call: StandInRequest, reply: Reply, state: StandInState) -> list[JsonObject]:
    if not reply.calls:
        return [{"text": reply.text}]
    signature = base64.b64encode(bytes.fromhex(state.new_id("", 64))).decode()
    # Models before 2.5 give calls no ids, so clients draw ids.
    has_ids = not call.model.startswith(("gemini-1.", "gemini-2.0"))
    ids: list[JsonObject] = [{"id": state.new_id("", 8)} if has_ids else {} for _ in reply.calls]
    return [
        {
            "functionCall": drawn | {"name": wanted.name, "args": wanted.arguments},
            "thoughtSignature": signature,
        }
        for drawn, wanted in zip(ids, reply.calls, strict=True)
    ]


def _chunk(
    call: StandInRequest, response_id: str, parts: list[JsonObject], reply: Reply, *, last: bool
) -> JsonObject:
    candidate: JsonObject = {"content": {"parts": parts, "role": "model"}}
    if last:
        candidate["finishReason"] = "STOP"
    return {
        "candidates": [candidate | {"index": 0}],
        "usageMetadata": _usage(call, reply),
        "modelVersion": call.model,
        "responseId": response_id,
    }


def _usage(call: StandInRequest, reply: Reply) -> JsonObject:
    read = call.tokens
    written = reply.tokens
    return {
        "promptTokenCount": read,
        "candidatesTokenCount": written,
        "totalTokenCount": read + written,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": read}],
    }


def _chunks(call: StandInRequest, state: StandInState) -> Iterator[JsonObject]:
    reply = reply_to(call, _turn(call.json))
    response_id = state.new_id("", 22)
    groups: list[list[JsonObject]] = [[{"text": piece}] for piece in pieces(reply.text)]
    if reply.calls:
        groups = [_parts(call, reply, state)]
    for position, parts in enumerate(groups, 1):
        yield _chunk(call, response_id, parts, reply, last=position == len(groups))


def embed(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST …/models/{model}:embedContent."""
    body: JsonObject = {"embedding": _embedding(call.json)}
    return _answer(body, state)


def embed_batch(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST …/models/{model}:batchEmbedContents."""
    embeddings = [_embedding(request) for request in objects_at(call.json, "requests")]
    return _answer({"embeddings": embeddings}, state)


def _embedding(request: JsonObject) -> JsonObject:
    words = "".join(text_at(part, "text") for part in objects_at(request, "content", "parts"))
    asked = int_at(request, "embedContentConfig", "outputDimensionality", default=_DIMENSIONS)
    return {"values": vector(words, int_at(request, "outputDimensionality", default=asked))}


def count_tokens(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST …/models/{model}:countTokens."""
    counted = call.tokens
    details = [{"modality": "TEXT", "tokenCount": counted}]
    body: JsonObject = {"totalTokens": counted, "promptTokensDetails": details}
    return _answer(body, state)


def list_models(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1beta/models."""
    model: JsonObject = {
        "name": "models/gemini-2.5-flash",
        "version": "001",
        "displayName": "Gemini 2.5 Flash",
        "inputTokenLimit": 1048576,
        "outputTokenLimit": 65536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    return _answer({"models": [model]}, state)
