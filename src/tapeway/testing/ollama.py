"""Ollama's own API: NDJSON streams unless the client declines."""

import orjson

from tapeway.testing.answer import (
    Headers,
    StandInAnswer,
    compact,
    stream,
    with_length,
    with_stream_fault,
)
from tapeway.testing.reply import (
    PendingTurn,
    Reply,
    StandInState,
    function_tools,
    pieces,
    reply_to,
    vector,
)
from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    int_at,
    list_at,
    objects_at,
    text_at,
    tokens,
)

_JSON: Headers = (("Content-Type", "application/json; charset=utf-8"),)
_NDJSON: Headers = (("Content-Type", "application/x-ndjson"),)
_DIMENSIONS = 768
_FAILURES = {
    400: "invalid request: the stand-in was asked for this error",
    401: "unauthorized",
    404: "model not found",
    429: "too many requests",
    503: "server busy, please try again. maximum pending requests exceeded",
}


def _answer(body: object) -> StandInAnswer:
    return with_length(200, _JSON, compact(body))


def failure(
    status: int, call: StandInRequest, state: StandInState, message: str = ""
) -> StandInAnswer:
    """An error as Ollama answers it: a plain string."""
    text = message or _FAILURES.get(status, "internal server error")
    fields = (*_JSON, ("Retry-After", "1")) if status == 429 else _JSON
    return with_length(status, fields, compact({"error": text}))


def chat(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /api/chat."""
    reply = reply_to(call, _turn(call.json))
    calls = [
        {"function": {"name": wanted.name, "arguments": wanted.arguments}} for wanted in reply.calls
    ]
    empty: JsonObject = {"role": "assistant", "content": ""}
    if _streamed(call):
        parts: list[JsonObject] = [{"message": empty | {"tool_calls": [one]}} for one in calls]
        parts += [{"message": empty | {"content": piece}} for piece in pieces(reply.text)]
        return _lines(call, state, parts, {"message": empty}, reply)
    message = empty | {"content": reply.text} | ({"tool_calls": calls} if calls else {})
    return _answer(_last(call, state, {"message": message}, reply))


def generate(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /api/generate."""
    schema = at(call.json, "format")
    prompt = text_at(call.json, "prompt")
    turn = PendingTurn(prompt, schema=schema if isinstance(schema, dict) else None)
    reply = reply_to(call, turn)
    context: JsonObject = {"context": [128006, 882, 128007, len(prompt)]}
    if _streamed(call):
        parts: list[JsonObject] = [{"response": piece} for piece in pieces(reply.text)]
        return _lines(call, state, parts, context | {"response": ""}, reply)
    body = _last(call, state, context | {"response": reply.text}, reply)
    return _answer(body)


def embed(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /api/embed."""
    given = at(call.json, "input")
    texts = [given] if isinstance(given, str) else list_at(call.json, "input")
    size = int_at(call.json, "dimensions", default=_DIMENSIONS)
    body: JsonObject = {
        "model": call.model,
        "embeddings": [vector(str(text), size) for text in texts],
        "total_duration": 14143917 + int(state.token_hex(2), 16),
        "load_duration": 1019500,
        "prompt_eval_count": sum(tokens(str(text)) for text in texts),
    }
    return _answer(body)


def embed_one(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /api/embeddings, the older endpoint."""
    body = {"embedding": vector(text_at(call.json, "prompt"), _DIMENSIONS)}
    return _answer(body)


def list_models(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /api/tags."""
    model: JsonObject = {
        "name": "llama3.2:latest",
        "model": "llama3.2:latest",
        "modified_at": "2025-05-10T08:06:48.639712648-07:00",
        "size": 2019393189,
        "digest": "a80c4f17acd55265feec403c7aef86be0c25983ab279d83f3bcd3abbcb5b8b72",
        "details": {"format": "gguf", "family": "llama", "parameter_size": "3.2B"},
    }
    return _answer({"models": [model]})


def show(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /api/show."""
    body: JsonObject = {
        "modelfile": "FROM llama3.2",
        "template": "{{ .Prompt }}",
        "details": {"format": "gguf", "family": "llama", "parameter_size": "3.2B"},
        "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
        "capabilities": ["completion", "tools"],
    }
    return _answer(body)


def version(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /api/version."""
    return with_length(200, _JSON, b'{"version":"0.12.6"}')


def _streamed(call: StandInRequest) -> bool:
    return at(call.json, "stream") is not False


def _turn(body: JsonObject) -> PendingTurn:
    prompt, results = "", list[str]()
    for message in objects_at(body, "messages"):
        if text_at(message, "role") == "user":
            prompt, results = text_at(message, "content"), []
        elif text_at(message, "role") == "tool":
            results.append(text_at(message, "content"))
    schema = at(body, "format")
    return PendingTurn(
        prompt, function_tools(body), tuple(results), schema if isinstance(schema, dict) else None
    )


def _lines(
    call: StandInRequest,
    state: StandInState,
    parts: list[JsonObject],
    ending: JsonObject,
    reply: Reply,
) -> StandInAnswer:
    bodies = [_head(call, state) | part | {"done": False} for part in parts]
    lines = [compact(body) + b"\n" for body in (*bodies, _last(call, state, ending, reply))]
    error = compact({"error": "llama runner process has terminated"}) + b"\n"
    return stream(_NDJSON, with_stream_fault(call, lines, error))


def _head(call: StandInRequest, state: StandInState) -> JsonObject:
    nanoseconds = f"{state.now():%Y-%m-%dT%H:%M:%S.%f}{int(state.token_hex(1), 16):03d}Z"
    return {"model": call.model, "created_at": nanoseconds}


def _last(
    call: StandInRequest, state: StandInState, middle: JsonObject, reply: Reply
) -> JsonObject:
    written = reply.text + orjson.dumps([wanted.name for wanted in reply.calls]).decode()
    counts: JsonObject = {
        "done": True,
        "done_reason": "stop",
        "total_duration": 4883583458 + int(state.token_hex(2), 16),
        "load_duration": 1334875,
        "prompt_eval_count": call.tokens,
        "prompt_eval_duration": 342546000,
        "eval_count": tokens(written),
        "eval_duration": 4535599000,
    }
    return _head(call, state) | middle | counts
