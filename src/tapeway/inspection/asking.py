"""Asks a service again what is recorded, and stores nothing.

Only what changes nothing at the service is asked, and only where a route leads: never the address in
a recording, which anybody may have written. The keys are those of the environment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tapeway.conversations.reader import DIALECTS
from tapeway.core.correlation.ids import request_tokens
from tapeway.core.http.routing import RouteTable
from tapeway.core.http.sigv4 import to_be_signed
from tapeway.core.json_text import Json, NotJson, parse
from tapeway.core.matching.placeholders import has_placeholder
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import WEBSOCKET, ChunkTimes, Request, Response
from tapeway.ports import LiveResponder
from tapeway.providers.api_call import ApiCall, describe_call
from tapeway.providers.catalogue import PROVIDERS, Provider

_READS = frozenset({"GET", "HEAD"})
_ANSWERS_ALONE = frozenset(
    {
        *DIALECTS,
        *("batchEmbedContents", "countTokens", "embed", "embedContent", "embeddings", "invoke"),
        *("invoke-with-response-stream", "messages.count_tokens", "moderations", "rerank"),
    }
)
"""Endpoints that are asked by POST and change nothing."""

PASSING = frozenset({401, 403, 407, 408, 425, 429, *range(500, 600)})
"""Statuses that say nothing about what the service answers otherwise."""

_NOT_SENT = frozenset({b"accept-encoding", b"if-none-match", b"if-modified-since"})
_KEY_HEADERS = {"anthropic": b"x-api-key", "azure": b"api-key", "gemini": b"x-goog-api-key"}
_BEARERS = frozenset({"ANTHROPIC_AUTH_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AZURE_OPENAI_AD_TOKEN"})
_BEDROCK = "bedrock"
_REGION_IN_HOST = re.compile(r"://[a-z0-9-]+\.([a-z0-9-]+)\.amazonaws\.com")

Credential = tuple[str, tuple[bytes, bytes]]
"""The variable that holds a key, and the header that carries it."""


def not_asked(item: Interaction, call: ApiCall | None, table: RouteTable, issued: set[str]) -> str:
    """Why a recording is not asked for; empty if it may be.

    `issued` are the identifiers in earlier answers of its cassette.
    """
    request, response = item.request, item.response
    if item.failure is not None or response.verdict == "truncated" or response.status in PASSING:
        return "recorded as a failure"
    if request.method == WEBSOCKET:
        return "recorded on a WebSocket connection"
    if request.method not in _READS and (call is None or call.endpoint not in _ANSWERS_ALONE):
        return "may change something at the service"
    if upstream_url(request, table) is None:
        return "no route leads there"
    if has_placeholder(request.target) or has_placeholder(request.body.decode("latin-1")):
        return "a secret was taken out of the request"
    if issued & _named(request):
        return "continues what an earlier answer began"
    return ""


def upstream_url(request: Request, table: RouteTable) -> str | None:
    """Where the route of a request leads, None where it leads nowhere."""
    if request.route in table.routes:
        return table.routes[request.route].url
    default = table.default
    return default.url if default is not None and default.name == request.route else None


def credential(request: Request, environ: Mapping[str, str]) -> Credential | None:
    """The key of the provider whose API is called, None where the environment has none."""
    provider = _provider(request)
    if provider is None:
        return None
    for name, key in _keys(provider, environ):
        if name in _BEARERS or (provider.name != _BEDROCK and provider.name not in _KEY_HEADERS):
            return name, (b"authorization", f"Bearer {key}".encode())
        if provider.name in _KEY_HEADERS:
            return name, (_KEY_HEADERS[provider.name], key.encode())
    if provider.signed and (region := _region(request, environ)):
        for name, _ in _keys(provider, environ):
            return name, (b"authorization", to_be_signed(region, provider.name))
    return None


def _region(request: Request, environ: Mapping[str, str]) -> str:
    """The region of AWS that a recording was made in, or else that of the environment."""
    found = _REGION_IN_HOST.search(request.base)
    return found[1] if found else environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION", "")


def missing_credential(request: Request, environ: Mapping[str, str]) -> str:
    """What has to be set before a service answers; empty if nothing has to be."""
    if credential(request, environ) is not None:
        return ""
    provider = _provider(request)
    if provider is not None and provider.keys:
        names = " and ".join([" or ".join(each) for each in provider.keys])
        return f"tapeway has no key of {provider.name}: start it with {names} in its environment"
    if request.credentials:
        return "the request was sent with a credential, and which one is not known"
    return ""


async def ask(
    responder: LiveResponder,
    item: Interaction,
    table: RouteTable,
    environ: Mapping[str, str],
    max_body: int,
) -> tuple[Request, Response]:
    """What is sent for a recording, and what the service answers now. Raises UpstreamError."""
    request = item.request
    key = credential(request, environ)
    headers = (*_sent_headers(request), *(() if key is None else (key[1],)))
    sent = replace(request, base=upstream_url(request, table) or "", headers=headers)
    async with responder.ask(sent) as answer:
        body: list[bytes] = []
        arrivals = ChunkTimes()

        def add(pieces: Sequence[bytes], at_ms: float, _lengths: object = None) -> None:
            for each in pieces:
                body.append(each)
                arrivals.add(at_ms, len(each))

        await answer.receive(max_body, add)
        response = Response(answer.head, b"".join(body), latency_ms=answer.elapsed_ms())
        return sent, response.with_arrivals(arrivals)


def _named(request: Request) -> set[str]:
    """The texts in the path and at the top of the body, where requests name what a service keeps."""
    found = request_tokens(replace(request, body=b""))
    try:
        body = parse(request.body)
    except NotJson:
        return found
    values: Iterable[Json] = body.values() if isinstance(body, dict) else ()
    return found | {each for each in values if isinstance(each, str)}


def _sent_headers(request: Request) -> Iterator[tuple[bytes, bytes]]:
    for name, value in request.headers:
        if name.lower() not in _NOT_SENT and not has_placeholder(value.decode("latin-1")):
            yield name, value


def _provider(request: Request) -> Provider | None:
    call = describe_call(request.route, request)
    return PROVIDERS.get(request.route if call is None else call.provider)


def _keys(provider: Provider, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for names in provider.keys:
        for name in names:
            if key := environ.get(name):
                yield name, key
