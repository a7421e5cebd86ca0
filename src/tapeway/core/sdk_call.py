"""A call of OpenAI's SDK as AgentTape records it: an endpoint and the arguments of a method.

The same call over HTTP is a POST of these arguments and of some that only say how it is made. Those
are left out here, so that both are found under one name.
"""

from collections.abc import Mapping

from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model import Request
from tapeway.core.readable import readable_request

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


def plain(endpoint: str, arguments: Mapping[str, Json]) -> Request:
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
