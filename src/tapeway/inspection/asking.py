"""Sends recorded requests to a service again, and stores nothing.

Only what changes nothing at the service is asked, and only where a route leads: never the address in
a recording, which anybody may have written. The keys are those of the environment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tapeway.conversations.reader import DIALECTS
from tapeway.core.correlation.ids import request_tokens
from tapeway.core.http.routing import Route, RouteTable
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
"""Statuses that do not show how the service answers otherwise."""

_NOT_SENT = frozenset({b"accept-encoding", b"if-none-match", b"if-modified-since"})
_IN_HOST = re.compile(r"://(?:[^/]+\.)?([a-z0-9-]+)\.([a-z]{2}(?:-[a-z]+)+-[0-9]+)\.amazonaws\.com")
"""Service and region in a host of AWS, behind a bucket's name."""
AWS_CREDENTIALS = "AWS credentials"
"""What the proxy's chain finds: variables, a profile, SSO, or the role of a machine or a pod."""

Credential = tuple[str, tuple[bytes, bytes]]
"""The variable that holds a key, or AWS_CREDENTIALS, and the header of the key."""


def not_asked(item: Interaction, call: ApiCall | None, table: RouteTable, issued: set[str]) -> str:
    """Why a recording is not asked for; empty if it may be.

    `issued` are the identifiers in earlier answers of its cassette.
    """
    request, response = item.request, item.response
    if item.failure is not None or response.verdict == "truncated" or response.status in PASSING:
        return "recorded as a failure"
    if changes_something(request, call):
        return "may change something at the service"
    if reason := not_sendable(request, table):
        return reason
    if issued & _named(request):
        return "continues what an earlier answer began"
    return ""


def changes_something(request: Request, call: ApiCall | None) -> bool:
    """Whether a request may change something at the service."""
    if request.method == WEBSOCKET or request.method in _READS:
        return False
    return call is None or call.endpoint not in _ANSWERS_ALONE


def not_sendable(request: Request, table: RouteTable) -> str:
    """Why a stored request cannot be sent as it once was; empty if it can be."""
    if request.method == WEBSOCKET:
        return "recorded on a WebSocket connection"
    if upstream_url(request, table) is None:
        return "no route leads there"
    if has_placeholder(request.target) or has_placeholder(request.body.decode("latin-1")):
        return "a secret was taken out of the request"
    return ""


def sent_again(request: Request, table: RouteTable, environ: Mapping[str, str]) -> Request:
    """A stored request as it is sent, with the key of the environment."""
    key = credential(request, environ, table)
    headers = (*_sent_headers(request), *(() if key is None else (key[1],)))
    return replace(request, base=upstream_url(request, table) or "", headers=headers)


def upstream_url(request: Request, table: RouteTable) -> str | None:
    """Where the route of a request leads, None where it leads nowhere."""
    route = _route(request, table)
    return None if route is None else route.url


def credential(
    request: Request, environ: Mapping[str, str], table: RouteTable
) -> Credential | None:
    """What a request is sent with: the key of the provider whose API is called, or a signature that is
    yet to be made. None where the environment has no key, and nothing is signed.
    """
    provider, route = _provider(request), _route(request, table)
    signing = None if route is None else route.signing
    for name, key in _keys(provider, environ):
        header, bearers = (provider.key_header, provider.bearers) if provider else (b"", ())
        if name in bearers or (signing is None and not header):
            return name, (b"authorization", f"Bearer {key}".encode())
        if header:
            return name, (header, key.encode())
    is_signed = bool(request.credentials) or (provider is not None and provider.signed)
    if signing is not None and is_signed:
        service, region = _signed_for(request, environ)
        asked = to_be_signed(signing.region or region, signing.service or service)
        return AWS_CREDENTIALS, (b"authorization", asked)
    return None


def _route(request: Request, table: RouteTable) -> Route | None:
    if (route := table.routes.get(request.route)) is not None:
        return route
    default = table.default
    return default if default is not None and default.name == request.route else None


def _signed_for(request: Request, environ: Mapping[str, str]) -> tuple[str, str]:
    """The service and the region of AWS in which a recording was made, or else the region of the environment."""
    match = _IN_HOST.search(request.base)
    provider = _provider(request)
    service = match[1] if match else ""
    if provider is not None and provider.signed:
        service = provider.name
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION", "")
    return service, match[2] if match else region


def missing_credential(request: Request, environ: Mapping[str, str], table: RouteTable) -> str:
    """What has to be set before a service answers; empty if nothing has to be."""
    if credential(request, environ, table) is not None:
        return ""
    provider = _provider(request)
    if provider is not None and provider.keys:
        names = " and ".join([" or ".join(variables) for variables in provider.keys])
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
    """The request for a recording, and the present answer of the service. Raises UpstreamError."""
    sent = sent_again(item.request, table, environ)
    async with responder.ask(sent) as answer:
        body: list[bytes] = []
        arrivals = ChunkTimes()

        def add(pieces: Sequence[bytes], at_ms: float, _lengths: object = None) -> None:
            for piece in pieces:
                body.append(piece)
                arrivals.add(at_ms, len(piece))

        await answer.receive(max_body, add)
        response = Response(answer.head, b"".join(body), latency_ms=answer.elapsed_ms())
        return sent, response.with_arrivals(arrivals)


def _named(request: Request) -> set[str]:
    """The texts in the path and at the top of the body, where requests name what a service keeps."""
    tokens = request_tokens(replace(request, body=b""))
    try:
        body = parse(request.body)
    except NotJson:
        return tokens
    values: Iterable[Json] = body.values() if isinstance(body, dict) else ()
    return tokens | {value for value in values if isinstance(value, str)}


def _sent_headers(request: Request) -> Iterator[tuple[bytes, bytes]]:
    for name, value in request.headers:
        if name.lower() not in _NOT_SENT and not has_placeholder(value.decode("latin-1")):
            yield name, value


def _provider(request: Request) -> Provider | None:
    call = describe_call(request.route, request)
    return PROVIDERS.get(request.route if call is None else call.provider)


def _keys(provider: Provider | None, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for names in () if provider is None else (*provider.keys, provider.further_keys):
        for name in names:
            if key := environ.get(name):
                yield name, key
