"""Repairs a target whose base URL has a `/v1` too many or too few.

SDKs differ in what they append to a base URL (`/messages` or `/v1/messages`), so a base URL that is
right for one SDK has a version too few or too many for another. Only a target to which the API
itself would answer 404 is repaired; an unknown path below the right prefix is passed on. The URL of
an upstream that ends in the version is the same slip on the other side, for any upstream.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tapeway.core.http.routing import (
    DEFAULT_ROUTE,
    BaseUrlFault,
    BaseUrlFaultKind,
    RequestAddress,
    Route,
    RouteTable,
)
from tapeway.providers.paths import api_of_path, owner

_WITHOUT_VERSION = {
    "/chat/completions": "openai",
    "/embeddings": "openai",
    "/messages": "anthropic",
    "/responses": "openai",
}
"""Paths that only one provider has below a version; `/models` is a path of many services."""
_DOUBLED = ("/v1", "/v1beta", "/api")


@dataclass(frozen=True, slots=True)
class Prefix:
    """A path prefix of an API, and the endpoints that exist below this prefix alone.

    An endpoint is its first segment, or its first two. Endpoints that several prefixes have are not
    listed: it is unknown which prefix was meant.
    """

    path: str
    endpoints: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RepairedTarget:
    """The repaired target, the prefix that a right one begins with, and the kind of error."""

    target: str
    prefix: str
    fault: BaseUrlFaultKind


def _at(path: str, endpoints: str = "") -> Prefix:
    return Prefix(path, frozenset(endpoints.split()))


_CHAT_ENDPOINTS = (
    "audio batches chat completions embeddings files images models moderations responses"
)
_OPENAI_ENDPOINTS = (
    "agents assistants audio batch batches chat classifications classifiers completions containers "
    "conversations embeddings evals files fim fine-tunes fine_tuning images libraries models "
    "moderations ocr realtime rerank responses threads uploads vector_stores videos"
)

# From the providers' references. Bedrock has no version in its paths. Azure's host may be any
# gateway, Perplexity has endpoints with and without /v1, DeepSeek all of them both ways: for these
# only a doubled prefix, or an endpoint that exists below /v1 alone, is known to be wrong.
PREFIXES: Mapping[str, tuple[Prefix, ...]] = {
    "openai": (_at("/v1", _OPENAI_ENDPOINTS),),
    "anthropic": (_at("/v1", "complete files messages models skills"),),
    "azure": (_at("/openai/v1"), _at("/openai")),
    "gemini": (
        _at("/v1beta", "batches cachedContents corpora fileSearchStores files models tunedModels"),
        _at("/v1"),
        _at("/v1alpha"),
    ),
    "vertex": (_at("/v1", "projects publishers"), _at("/v1beta1")),
    "bedrock": (),
    "mistral": (_at("/v1", _OPENAI_ENDPOINTS),),
    "groq": (_at("/openai/v1", _CHAT_ENDPOINTS),),
    "cohere": (
        _at("/v2"),
        _at(
            "/v1",
            "check-api-key classify connectors datasets detokenize embed-jobs models tokenize",
        ),
    ),
    "together": (_at("/v1", _OPENAI_ENDPOINTS),),
    "fireworks": (_at("/inference/v1", "audio chat completions embeddings rerank responses"),),
    "cerebras": (_at("/v1", "chat completions models"),),
    "perplexity": (_at("/v1", "agent embeddings responses"),),
    # Its host also has web pages, such as /models and /chat.
    "openrouter": (
        _at("/api/v1", "chat/completions completions credits embeddings key messages responses"),
    ),
    "deepseek": (_at("/v1"), _at("/beta")),
    "xai": (_at("/v1", f"{_CHAT_ENDPOINTS} language-models messages tokenize-text"),),
    # Both have /embeddings.
    "ollama": (
        _at("/api", "copy create delete embed generate ps pull push show tags version"),
        _at("/v1", "chat/completions completions models responses"),
    ),
    "voyage": (
        _at("/v1", "batches contextualizedembeddings embeddings multimodalembeddings rerank"),
    ),
    # Other first segments are names of the providers behind its router.
    "huggingface": (_at("/v1", "chat/completions responses"),),
}

_KNOWN_PREFIXES = sorted(
    {prefix.path for known in PREFIXES.values() for prefix in known}, key=len, reverse=True
)


def repair_address(address: RequestAddress, table: RouteTable) -> RequestAddress:
    """The corrected address; the same object if it needs no correction.

    What the URL of the route has too many is taken from there and not from the target: the recording
    is the one that the right URL gives.
    """
    route = address.route
    if route.name == DEFAULT_ROUTE and address.guessed:
        provider = _provider_meant(address.target)
        if provider is None or provider not in table.routes:
            return address
        route = table.routes[provider]
    base = urlsplit(route.url or "").path.rstrip("/")
    found = repair_target(route.name, address.target, base)
    if base and (found is None or not found.prefix):
        repeated = _repeated(address.target, base, found)
        return address if repeated is None else _with_shorter_url(address, route, repeated)
    if found is None:
        return address
    fault = BaseUrlFault(found.fault, found.prefix, address.target)
    return replace(address, route=route, target=found.target, base_url_fault=fault)


def repair_target(provider: str, target: str, base: str = "") -> RepairedTarget | None:
    """The corrected form of a raw target below a provider's route; None to leave it as it is.

    `base` is the path of the route's URL. If that is not part of the API's own prefix, the service
    may have other paths, and only a doubled prefix counts as an error.
    """
    prefixes = PREFIXES.get(provider, ())
    path, mark, query = target.partition("?")
    if base and not any(_is_at_or_below(each.path, base) for each in prefixes):
        base, prefixes = "", tuple(Prefix(each.path) for each in prefixes)
    written = base + path
    for prefix in prefixes:
        for head, fault in _wrong_prefixes(prefix.path):
            rest = written[len(head) :]
            meant = prefix.path + rest
            if written.startswith(head) and _is_endpoint(rest, prefix, fault):
                below = prefix.path[len(base) :]
                return RepairedTarget(meant[len(base) :] + mark + query, below, fault)
    return None


def _repeated(target: str, base: str, found: RepairedTarget | None) -> str | None:
    """The prefix in which the path of the route's URL ends and with which the target begins.

    Where nothing is `found` in the table of the provider's prefixes, the service may be any: the
    target must be a path that an LLM API has.
    """
    if found is not None:
        return target.removesuffix(found.target)
    path = target.partition("?")[0]
    for prefix in _KNOWN_PREFIXES:
        if base.endswith(prefix) and path.startswith(f"{prefix}/"):
            known = owner(path, ()) is not None or api_of_path(path) is not None
            return prefix if known else None
    return None


def _with_shorter_url(address: RequestAddress, route: Route, repeated: str) -> RequestAddress:
    url = (route.url or "").rstrip("/").removesuffix(repeated)
    fault = BaseUrlFault("upstream", repeated, address.target)
    return replace(address, route=Route(route.name, url), base_url_fault=fault)


def _wrong_prefixes(prefix: str) -> Iterator[tuple[str, BaseUrlFaultKind]]:
    """What may be in place of the prefix: `/openai/v1` twice, its last or its first part, nothing."""
    first, last = f"/{prefix.split('/')[1]}", f"/{prefix.rpartition('/')[2]}"
    yield prefix + prefix, "doubled"
    if first != last:
        yield prefix + last, "doubled"
        yield prefix.removesuffix(last), "missing"
        yield prefix.removeprefix(first), "missing"
    yield "", "missing"


def _is_endpoint(rest: str, prefix: Prefix, fault: BaseUrlFaultKind) -> bool:
    first, second, *_ = [*rest[1:].split("/", 2), ""]
    if not rest.startswith("/") or not first:
        return False
    if fault == "missing":
        return first in prefix.endpoints or f"{first}/{second}" in prefix.endpoints
    return first not in prefix.path.split("/")


def _is_at_or_below(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")


def _provider_meant(target: str) -> str | None:
    """The provider of a target that no path rule recognises as written."""
    path = target.partition("?")[0]
    for prefix in _DOUBLED:
        if path.startswith(f"{prefix}{prefix}/"):
            return owner(path.removeprefix(prefix), ())
    for start, provider in _WITHOUT_VERSION.items():
        if _is_at_or_below(path, start):
            return provider
    return None
