"""Calls of OpenAI's SDK as AgentTape records them, and the equivalent HTTP requests.

AgentTape records a method's arguments and the returned object. Over HTTP, the call is a
POST of these arguments and of arguments that only control the transport. The latter are left out,
so that both forms have one alias. A client may request the result as a stream, or the
embeddings in base64, and gets the form if the recorded result can be converted.
"""

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tapeway.core.http.content_codings import readable_request
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.loose_json import fields, objects
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import NO_CHUNK_TIMES, ChunkTimes, Request, Response

ENDPOINTS: Mapping[str, str] = {
    "chat.completions": "/chat/completions",
    "responses": "/responses",
    "embeddings": "/embeddings",
}
"""The methods that AgentTape records, with the end of the path for each."""

JSON_TYPE = (b"content-type", b"application/json")
_EVENT_STREAM_TYPE = (b"content-type", b"text/event-stream; charset=utf-8")

NOT_STREAMABLE = (
    "#{index} matches, but cannot be streamed: AgentTape recorded {endpoint} as one result, and only "
    "chat.completions can be replayed as a stream"
)

_PATH = "/v1"
_TRANSPORT_ARGUMENTS = frozenset(
    {"stream", "timeout", "stream_options", "extra_headers", "extra_query", "extra_body"}
)


def request_of(endpoint: str, arguments: Mapping[str, Json]) -> Request:
    """The HTTP request of such a call, on no route."""
    return Request(
        route="",
        method="POST",
        target=f"{_PATH}{ENDPOINTS[endpoint]}",
        headers=(JSON_TYPE,),
        body=dump(dict(arguments)),
    )


def endpoint_of(request: Request) -> str | None:
    """The SDK method behind a request, None for other requests.

    The path may begin with anything: SDKs are pointed at gateways and Azure deployments.
    """
    if request.method != "POST" or request.file is not None:
        return None
    path = request.target.partition("?")[0]
    return next((name for name, ending in ENDPOINTS.items() if path.endswith(ending)), None)


def body_of(request: Request) -> Mapping[str, Json]:
    """The JSON object in a request's body, empty where there is none."""
    return _json_object(readable_request(request).body)


def arguments_of(body: Mapping[str, Json]) -> dict[str, Json]:
    """The arguments in AgentTape's key, beside the endpoint."""
    return {
        name: value
        for name, value in body.items()
        if value is not None and name not in _TRANSPORT_ARGUMENTS
    }


def canonical_request(endpoint: str, arguments: Mapping[str, Json]) -> Request:
    """The HTTP request of such a call, without an SDK's additions."""
    kept = {
        name: value
        for name, value in arguments.items()
        # The SDK requests base64 by default, and decodes it.
        if (endpoint, name, value) != ("embeddings", "encoding_format", "base64")
    }
    return request_of(endpoint, fields(_without_nulls(kept)))


def _without_nulls(value: Json) -> Json:
    # An SDK's message that is sent back has a null for each missing field.
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def is_sdk_result(interaction: Interaction) -> bool:
    """Whether it is the result of an SDK method and not an HTTP exchange."""
    return bool(interaction.stored_keys) and not interaction.request.base


def can_answer(interaction: Interaction, asked: Request) -> bool:
    """Whether the recording can be converted to the requested form."""
    if not is_sdk_result(interaction) or interaction.response.status != 200:
        return True
    streamed = body_of(asked).get("stream") is True
    return not streamed or endpoint_of(asked) == "chat.completions"


def in_requested_form(interaction: Interaction, asked: Request) -> Interaction:
    """The recording in the requested form."""
    if not is_sdk_result(interaction) or interaction.response.status != 200:
        return interaction
    body = body_of(asked)
    endpoint = endpoint_of(asked)
    if endpoint == "chat.completions" and body.get("stream") is True:
        return replace(interaction, response=_streamed(interaction.response, body))
    if endpoint == "embeddings" and body.get("encoding_format") == "base64":
        return replace(interaction, response=_with_packed_embeddings(interaction.response))
    return interaction


def _streamed(response: Response, asked: Mapping[str, Json]) -> Response:
    result = _json_object(response.body)
    options = asked.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    events = [b"data: %b\n\n" % dump(chunk) for chunk in _chunks(result, with_usage=usage)]
    events.append(b"data: [DONE]\n\n")
    at_ms = _end_ms(response)
    return replace(
        response.with_arrivals(ChunkTimes([(at_ms, len(event)) for event in events])),
        head=replace(response.head, headers=(_EVENT_STREAM_TYPE,), framing="chunked"),
        body=b"".join(events),
        verdict="marked",
    )


def _end_ms(response: Response) -> float:
    return max(response.arrivals().times, default=0.0)


def _chunks(result: Mapping[str, Json], *, with_usage: bool) -> Iterator[dict[str, Json]]:
    head: dict[str, Json] = {
        name: value
        for name, value in result.items()
        if name not in ("choices", "usage") and value is not None
    }
    head["object"] = "chat.completion.chunk"
    choices = [*objects(result.get("choices"))]
    for choice in choices:
        yield head | {"choices": [_chunk_choice(choice, _delta(choice), choice.get("logprobs"))]}
    for choice in choices:
        last = _chunk_choice(choice, {}, None)
        yield head | {"choices": [last | {"finish_reason": choice.get("finish_reason")}]}
    if with_usage:
        yield head | {"choices": [], "usage": result.get("usage")}


def _chunk_choice(
    choice: Mapping[str, Json], delta: dict[str, Json], logprobs: Json
) -> dict[str, Json]:
    index = choice.get("index", 0)
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}


def _delta(choice: Mapping[str, Json]) -> dict[str, Json]:
    message = choice.get("message")
    if not isinstance(message, dict):
        return {}
    delta: dict[str, Json] = {
        name: member for name, member in message.items() if member is not None
    }
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        delta["tool_calls"] = [
            {"index": at, **call} for at, call in enumerate(calls) if isinstance(call, dict)
        ]
    return delta


def _with_packed_embeddings(response: Response) -> Response:
    result = _json_object(response.body)
    data = result.get("data")
    if not isinstance(data, list):
        return response
    body = dump({**result, "data": [_base64(item) for item in data]})
    return replace(response, body=body, at_ms=_end_ms(response), chunk_times=NO_CHUNK_TIMES)


def _base64(item: Json) -> Json:
    numbers = item.get("embedding") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(numbers, list):
        return item
    floats = [float(number) for number in numbers if isinstance(number, int | float)]
    # As OpenAI packs them: 32 bits each, little-endian.
    packed = b"".join([struct.pack("<f", number) for number in floats])
    return {**item, "embedding": base64.b64encode(packed).decode("ascii")}


def _json_object(body: bytes) -> Mapping[str, Json]:
    try:
        value = parse(body)
    except NotJson:
        return {}
    return fields(value)
