"""The API call that a request makes: provider, endpoint, model, streamed or not."""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tapeway.core.http import content_codings, forms
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, json_object
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import WEBSOCKET, Headers, Request
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.endpoints import ENDPOINTS, api_of_path, endpoint_named
from tapeway.providers.paths import owner


class ApiCall(NamedTuple):
    """A call of a provider's API; `model` is None where the request names none."""

    provider: str
    endpoint: str
    model: str | None
    stream: bool


_NAME = r"[A-Za-z][\w-]*"
_VERBS = {
    "gemini": re.compile(rf"/(?P<model>[^/]+)(?::|%3[aA])(?P<verb>{_NAME})$"),
    "bedrock": re.compile(r"/model/(?P<model>[^/]+)/(?P<verb>(?:converse|invoke)[a-z-]*)$"),
}
"""Dialects whose paths contain the model and a verb."""

# The path before the endpoint's name. `/threads/x/messages` must not count as `/messages`:
# the path ends in a version, a compatibility folder or an Azure deployment.
_PREFIX = re.compile(
    r"(?:.*/)?(?:v\d\w*|api|openai|openapi|deployments/(?P<deployment>[^/]+))(?=/)", re.ASCII
)
_RESOURCE = re.compile(rf"/(?P<name>{_NAME})(?:/(?P<action>{_NAME}))?(?=/|$)")

_BIDI = re.compile(
    r"/ws/google\.[\w.]+\.(?:GenerativeService\.|LlmBidiService/)(?P<verb>BidiGenerateContent)\w*$"
)
"""The path of a Live session, at the Gemini API and at Vertex AI."""

_ASKING = frozenset({"POST", WEBSOCKET})
"""A turn of the Responses API over WebSocket is the call that a POST is."""

_MAY_CHANGE = re.compile(rb'"(?:background|conversation|container)"\s*:')
"""Found before the body is parsed."""

_SETTINGS = (
    *("generationConfig", "generation_config", "inferenceConfig", "options", "parameters"),
    "textGenerationConfig",
)
"""Members of a request's body in which some APIs have the temperature."""


def describe_call(route: str, request: Request, value: Json = None) -> ApiCall | None:
    """The call a request makes, None for a request that is no call of a known API.

    The provider is the route's name for a built-in route. Otherwise the path decides, by the API
    behind it: a stand-in or a gateway behind any route is recognised.
    `value` is the parsed body, if the body is plain JSON and was read.
    """
    path = request.target.partition("?")[0]
    if (bidi := _BIDI.search(path)) is not None:
        provider = "vertex" if "aiplatform" in path else "gemini"
        return ApiCall(provider, bidi["verb"], _model_in_setup(request), stream=True)
    api = _api_of(route, request.base, path, request.headers)
    if api is None:
        return None
    return _verb_call(*api) or _resource_call(*api, request, value)


def calls_model(request: Request) -> bool:
    """Whether a request asks a model for an answer, and leaves nothing behind at the service."""
    if request.method not in _ASKING:
        return False
    path = request.target.partition("?")[0].rstrip("/")
    endpoint = _endpoint_at(request.route, request.base, path, request.headers)
    if endpoint is None or not endpoint_named(endpoint).calls_model:
        return False
    # `/messages/batches` and `/responses/ID/cancel` are other calls below the same resource.
    name = endpoint.removeprefix("api.").replace(".", "/")
    if not path.endswith((f"/{name}", f":{name}", f"%3A{name}", f"%3a{name}")):
        return False
    coded = content_codings.content_coding(request.headers)
    return not ((coded or _MAY_CHANGE.search(request.body)) and _changes_service(request))


def _endpoint_at(route: str, base: str, path: str, headers: Headers) -> str | None:
    if (api := _api_of(route, base, path, headers)) is None:
        return None
    call = _verb_call(*api)
    return _resource(api[1])[0] if call is None else call.endpoint


def _changes_service(request: Request) -> bool:
    """Whether a call goes on at the service, or changes a conversation or a container there."""
    fields = _fields(request)
    tools = fields.get("tools")
    places = [fields, *(tools if isinstance(tools, list) else ())]
    return bool(fields.get("background") or fields.get("conversation")) or any(
        isinstance(place, dict) and bool(place.get("container")) for place in places
    )


def samples(interaction: Interaction) -> bool:
    """Whether a recorded call had a model sample its answer: asked again, it gives another one."""
    name = interaction.metadata.get("endpoint")
    if not isinstance(name, str) or not endpoint_named(name).samples:
        return False
    fields = _fields(interaction.request)
    places = [fields, *[fields.get(name) for name in _SETTINGS]]
    return not any(
        isinstance(options, dict) and options.get("temperature") == 0 for options in places
    )


def _api_of(route: str, base: str, target: str, headers: Headers) -> tuple[str, str] | None:
    path = urlsplit(base).path.rstrip("/") + target
    provider = route if route in PROVIDERS else owner(path, headers)
    return api_of_path(path) if provider is None else (provider, path)


def _verb_call(provider: str, path: str) -> ApiCall | None:
    pattern = _VERBS.get(PROVIDERS[provider].dialect)
    match = pattern.search(path) if pattern is not None else None
    if match is None:
        return None
    verb = match["verb"]
    return ApiCall(provider, verb, unquote(match["model"]), "stream" in verb.lower())


def _resource_call(provider: str, path: str, request: Request, value: Json) -> ApiCall | None:
    endpoint, deployment = _resource(path)
    if endpoint is None:
        return None
    fields = value if isinstance(value, dict) else _fields(request)
    model = fields.get("model", deployment)
    if model is None and endpoint == "realtime":
        model = _model_in_query(request.target)
    stream = fields.get("stream", endpoint_named(endpoint).streams_unasked)
    return ApiCall(provider, endpoint, model if isinstance(model, str) else None, stream is True)


def _model_in_setup(request: Request) -> str | None:
    setup = _fields(request).get("setup")
    model = setup.get("model") if isinstance(setup, dict) else None
    # A resource: `models/NAME`, or `projects/…/models/NAME`.
    return model.rpartition("/")[2] if isinstance(model, str) else None


def _model_in_query(target: str) -> str | None:
    # Not `urlsplit`: a target that begins with `//` may name no host that can be read.
    named = parse_qs(target.partition("?")[2]).get("model")
    return named[0] if named else None


@lru_cache(maxsize=512)
def _resource(path: str) -> tuple[str | None, str | None]:
    prefix = _PREFIX.match(path)
    resource = _RESOURCE.match(path, prefix.end() if prefix else 0)
    if resource is None:
        return None, None
    endpoint, action = resource["name"], resource["action"]
    if (below := f"{endpoint}.{action}") in ENDPOINTS:
        endpoint = below
    if prefix is None:
        return endpoint, None
    # Ollama's API has `api` in place of a version.
    if prefix[0].endswith("/api"):
        endpoint = f"api.{endpoint}"
    deployment = prefix["deployment"]
    return endpoint, None if deployment is None else unquote(deployment)


def _fields(request: Request) -> dict[str, Json]:
    content_type = find_header(request.headers, b"content-type") or b""
    body = content_codings.decode(content_codings.content_coding(request.headers), request.body)
    if not body:
        return {}
    if content_type.lower().startswith(b"multipart/"):
        parts = forms.parse_multipart(content_type, body) or []
        return {
            part.name: part.body.decode("utf-8", "replace")
            for part in parts
            if part.name == "model"
        }
    return json_object(body) or {}
