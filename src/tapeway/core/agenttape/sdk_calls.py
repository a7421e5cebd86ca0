"""A call of OpenAI's SDK as AgentTape records it: an endpoint and the arguments of a method.

The same call over HTTP is a POST of these arguments and of some that only say how it is made. Those
are left out here, so that both are found under one name.

What an SDK's recorded result is over HTTP, in the form that is asked for.

AgentTape records the object that a method returned. A client may ask for the same as a stream, or
for its embeddings in base64: it is given that where it says the same, and nothing otherwise.
"""

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tapeway.core.http.content_codings import readable_request
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk

ENDPOINTS: Mapping[str, str] = {
    "chat.completions": "/chat/completions",
    "responses": "/responses",
    "embeddings": "/embeddings",
}
"""The methods AgentTape records, and how the paths end that they post to."""
JSON_TYPE = (b"content-type", b"application/json")
_PATH = "/v1"
_HOW = frozenset(
    {"stream", "timeout", "stream_options", "extra_headers", "extra_query", "extra_body"}
)
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
NOT_STREAMABLE = (
    "#{index} holds what it asks for, but not as the stream it asks for: AgentTape recorded the "
    "result of {endpoint} whole, and only that of chat.completions can be told as a stream"
)


def request_of(endpoint: str, arguments: Mapping[str, Json]) -> Request:
    """The request that asks for the same, on no route."""
    return Request(
        route="",
        method="POST",
        target=f"{_PATH}{ENDPOINTS[endpoint]}",
        headers=(JSON_TYPE,),
        body=dump(dict(arguments)),
    )


def endpoint_of(request: Request) -> str | None:
    """The method that makes such a request, whatever its path begins with."""
    if request.method != "POST" or request.file is not None:
        return None
    path = request.target.partition("?")[0]
    return next((name for name, ending in ENDPOINTS.items() if path.endswith(ending)), None)


def body_of(request: Request) -> Mapping[str, Json]:
    """All that a request says, empty where that is no JSON object."""
    try:
        value = parse(readable_request(request).body)
    except NotJson:
        return {}
    return value if isinstance(value, dict) else {}


def arguments_of(body: Mapping[str, Json]) -> dict[str, Json]:
    """What AgentTape makes its key of, besides the endpoint."""
    return {name: value for name, value in body.items() if value is not None and name not in _HOW}


def canonical_request(endpoint: str, arguments: Mapping[str, Json]) -> Request:
    """The request for the same with nothing in it that an SDK adds by itself, in one way to ask."""
    kept = {
        name: value
        for name, value in arguments.items()
        # The SDK asks for it on its own account, and turns what comes into numbers.
        if (endpoint, name, value) != ("embeddings", "encoding_format", "base64")
    }
    said = _without_nulls(kept)
    return request_of(endpoint, said if isinstance(said, dict) else {})


def _without_nulls(value: Json) -> Json:
    # A message that an SDK answered and that is sent back has a null for each field it lacks.
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def is_sdk_result(interaction: Interaction) -> bool:
    """Whether it is the result of an SDK's method and not an exchange of HTTP."""
    return bool(interaction.stored_keys) and not interaction.request.base


def can_answer(interaction: Interaction, asked: Request) -> bool:
    """Whether it can be given in the form that is asked for."""
    if not is_sdk_result(interaction) or interaction.response.status != 200:
        return True
    streamed = body_of(asked).get("stream") is True
    return not streamed or endpoint_of(asked) == "chat.completions"


def in_requested_form(interaction: Interaction, asked: Request) -> Interaction:
    """The recording in the form that is asked for."""
    if not is_sdk_result(interaction) or interaction.response.status != 200:
        return interaction
    body = body_of(asked)
    endpoint = endpoint_of(asked)
    if endpoint == "chat.completions" and body.get("stream") is True:
        return replace(interaction, response=_streamed(interaction.response, body))
    if endpoint == "embeddings" and body.get("encoding_format") == "base64":
        return replace(interaction, response=_packed(interaction.response))
    return interaction


def _streamed(response: Response, asked: Mapping[str, Json]) -> Response:
    result = _object(response)
    options = asked.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    events = [b"data: %b\n\n" % dump(each) for each in _chunks(result, with_usage=usage)]
    at_ms = response.chunks[-1].at_ms if response.chunks else 0.0
    return replace(
        response,
        head=replace(response.head, headers=(EVENTS,), framing="chunked"),
        chunks=tuple([ResponseChunk(each, at_ms) for each in (*events, b"data: [DONE]\n\n")]),
        verdict="marked",
    )


def _chunks(result: Mapping[str, Json], *, with_usage: bool) -> Iterator[dict[str, Json]]:
    head: dict[str, Json] = {
        name: value
        for name, value in result.items()
        if name not in ("choices", "usage") and value is not None
    }
    head["object"] = "chat.completion.chunk"
    choices = result.get("choices")
    found = (
        [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
    )
    for choice in found:
        rest: dict[str, Json] = {"index": choice.get("index", 0)}
        said: dict[str, Json] = {"delta": _delta(choice), "logprobs": choice.get("logprobs")}
        yield head | {"choices": [rest | said | {"finish_reason": None}]}
    for choice in found:
        last = {"index": choice.get("index", 0), "delta": {}, "logprobs": None}
        yield head | {"choices": [last | {"finish_reason": choice.get("finish_reason")}]}
    if with_usage:
        yield head | {"choices": [], "usage": result.get("usage")}


def _delta(choice: Mapping[str, Json]) -> dict[str, Json]:
    message = choice.get("message")
    if not isinstance(message, dict):
        return {}
    said: dict[str, Json] = {name: each for name, each in message.items() if each is not None}
    calls = said.get("tool_calls")
    if isinstance(calls, list):
        said["tool_calls"] = [
            {"index": at, **each} for at, each in enumerate(calls) if isinstance(each, dict)
        ]
    return said


def _packed(response: Response) -> Response:
    result = _object(response)
    data = result.get("data")
    if not isinstance(data, list):
        return response
    body = dump({**result, "data": [_base64(each) for each in data]})
    return replace(response, chunks=(ResponseChunk(body, response.chunks[-1].at_ms),))


def _base64(item: Json) -> Json:
    numbers = item.get("embedding") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(numbers, list):
        return item
    floats = [float(each) for each in numbers if isinstance(each, int | float)]
    # As the service packs them: 32 bits each, the least significant octet first.
    packed = b"".join([struct.pack("<f", each) for each in floats])
    return {**item, "embedding": base64.b64encode(packed).decode("ascii")}


def _object(response: Response) -> Mapping[str, Json]:
    try:
        value = parse(response.body)
    except NotJson:
        return {}
    return value if isinstance(value, dict) else {}
