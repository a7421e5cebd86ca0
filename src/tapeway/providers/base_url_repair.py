"""A base URL with a `/v1` too many or too few, forgiven where the provider knows no such path.

Where each API's paths begin, and what a target meant whose base URL missed that by a `/v1`.

SDKs differ in what they add to a base URL (`/messages` or `/v1/messages`), so a base URL that is
right for one is a version short, or one too long, for another. Only what the API itself would
answer with 404 is mended; an unheard-of path below the right prefix is the API's own business.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tapeway.core.http.routing import (
    DEFAULT_ROUTE,
    BaseUrlFault,
    BaseUrlFaultKind,
    RequestAddress,
    RouteTable,
)
from tapeway.providers.paths import owner

_UNNAMED = {
    "/chat/completions": "openai",
    "/embeddings": "openai",
    "/messages": "anthropic",
    "/responses": "openai",
}
"""The paths one provider alone has a version below; `/models` is a path of many services."""
_DOUBLED = ("/v1", "/v1beta", "/api")


@dataclass(frozen=True, slots=True)
class Prefix:
    """A path that endpoints live below, and the ones that are found nowhere else in that API.

    An endpoint is named by its first segment, or by its first two. None are named where several
    prefixes have the same ones: then nobody can say which was meant.
    """

    path: str
    endpoints: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RepairedTarget:
    """The target that was meant, what a right one begins with, and how that was missed."""

    target: str
    prefix: str
    fault: BaseUrlFaultKind


def _at(path: str, endpoints: str = "") -> Prefix:
    return Prefix(path, frozenset(endpoints.split()))


_CHAT = "audio batches chat completions embeddings files images models moderations responses"
_SEVERAL = (
    "agents assistants audio batch batches chat classifications classifiers completions containers "
    "conversations embeddings evals files fim fine-tunes fine_tuning images libraries models "
    "moderations ocr realtime rerank responses threads uploads vector_stores videos"
)

# From the providers' references. Bedrock has no version in its paths; Azure's host may be anybody's
# gateway, Perplexity has endpoints with and without /v1 and DeepSeek all of them both ways, so of
# these only a doubled one is known to be wrong, or what stands below /v1 alone.
PREFIXES: Mapping[str, tuple[Prefix, ...]] = {
    "openai": (_at("/v1", _SEVERAL),),
    "anthropic": (_at("/v1", "complete files messages models skills"),),
    "azure": (_at("/openai/v1"), _at("/openai")),
    "gemini": (
        _at("/v1beta", "batches cachedContents corpora fileSearchStores files models tunedModels"),
        _at("/v1"),
        _at("/v1alpha"),
    ),
    "vertex": (_at("/v1", "projects publishers"), _at("/v1beta1")),
    "bedrock": (),
    "mistral": (_at("/v1", _SEVERAL),),
    "groq": (_at("/openai/v1", _CHAT),),
    "cohere": (
        _at("/v2"),
        _at(
            "/v1",
            "check-api-key classify connectors datasets detokenize embed-jobs models tokenize",
        ),
    ),
    "together": (_at("/v1", _SEVERAL),),
    "fireworks": (_at("/inference/v1", "audio chat completions embeddings rerank responses"),),
    "cerebras": (_at("/v1", "chat completions models"),),
    "perplexity": (_at("/v1", "agent embeddings responses"),),
    # Its host has pages of its own, such as /models and /chat.
    "openrouter": (
        _at("/api/v1", "chat/completions completions credits embeddings key messages responses"),
    ),
    "deepseek": (_at("/v1"), _at("/beta")),
    "xai": (_at("/v1", f"{_CHAT} language-models messages tokenize-text"),),
    # /embeddings is in both.
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


def repair_target(provider: str, target: str, base: str = "") -> RepairedTarget | None:
    """What a raw target below a provider's route meant, or None for one that goes as it is.

    `base` is the path of the route's URL. Where that is no part of the API's own, the service
    behind it may be laid out in another way, and only a doubled prefix is taken for a fault.
    """
    prefixes = PREFIXES.get(provider, ())
    path, mark, query = target.partition("?")
    if base and not any(_begins(each.path, base) for each in prefixes):
        base, prefixes = "", tuple(Prefix(each.path) for each in prefixes)
    written = base + path
    for prefix in prefixes:
        for head, fault in _faulty_prefixes(prefix.path):
            rest = written[len(head) :]
            meant = prefix.path + rest
            if written.startswith(head) and _is_below(rest, prefix, fault):
                below = prefix.path[len(base) :]
                return RepairedTarget(meant[len(base) :] + mark + query, below, fault)
    return None


def _faulty_prefixes(prefix: str) -> Iterator[tuple[str, BaseUrlFaultKind]]:
    """What may stand where the prefix belongs: `/openai/v1` twice, its last or first part alone."""
    first, last = f"/{prefix.split('/')[1]}", f"/{prefix.rpartition('/')[2]}"
    yield prefix + prefix, "doubled"
    if first != last:
        yield prefix + last, "doubled"
        yield prefix.removesuffix(last), "missing"
        yield prefix.removeprefix(first), "missing"
    yield "", "missing"


def _is_below(rest: str, prefix: Prefix, fault: BaseUrlFaultKind) -> bool:
    first, second, *_ = [*rest[1:].split("/", 2), ""]
    if not rest.startswith("/") or not first:
        return False
    if fault == "missing":
        return first in prefix.endpoints or f"{first}/{second}" in prefix.endpoints
    return first not in prefix.path.split("/")


def _begins(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")


def repair_address(address: RequestAddress, table: RouteTable) -> RequestAddress:
    """The address that was meant; the very one that was given where it needs no forgiving."""
    route = address.route
    if route.name == DEFAULT_ROUTE:
        provider = _meant(address.target) if address.guessed else None
        if provider is None or provider not in table.routes:
            return address
        route = table.routes[provider]
    base = urlsplit(route.url or "").path.rstrip("/")
    found = repair_target(route.name, address.target, base)
    if found is None:
        return address
    fault = BaseUrlFault(found.fault, found.prefix, address.target)
    return replace(address, route=route, target=found.target, base_url_fault=fault)


def _meant(target: str) -> str | None:
    """The provider of a target that is nobody's as it was written."""
    path = target.partition("?")[0]
    for prefix in _DOUBLED:
        if path.startswith(f"{prefix}{prefix}/"):
            return owner(path.removeprefix(prefix), ())
    for begin, provider in _UNNAMED.items():
        if path == begin or path.startswith(f"{begin}/"):
            return provider
    return None
