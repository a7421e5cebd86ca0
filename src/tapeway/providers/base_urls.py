"""Recognises a base URL that has a `/v1` too many or too few.

SDKs differ in what they append to a base URL (`/messages` or `/v1/messages`), so a base URL that is
right for one SDK is a version off for another. Such a request gets an error that
names the right URL, and is sent nowhere. Only a target that the API would answer with 404
counts as wrong; an unknown path below the right prefix is passed on. The URL of an upstream that ends
in the version is a mistake too, for any upstream.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from tapeway.core.http.routing import DEFAULT_ROUTE, BaseUrlFault, RequestAddress
from tapeway.providers.catalogue import PROVIDERS, Prefix
from tapeway.providers.endpoints import api_of_path
from tapeway.providers.paths import owner

_WITHOUT_VERSION = frozenset({"/chat/completions", "/embeddings", "/messages", "/responses"})
"""Paths that only LLM APIs have below a version; `/models` is a path of many services."""
_DOUBLED = ("/v1", "/v1beta", "/api")
_VERSION = re.compile(r"(/v[0-9]+(?:(?:alpha|beta)[0-9]*)?)(?:/|$)")

_KNOWN_PREFIXES = sorted(
    {prefix.path for provider in PROVIDERS.values() for prefix in provider.prefixes},
    key=len,
    reverse=True,
)


def base_url_fault(address: RequestAddress) -> BaseUrlFault | None:
    """The mistake in the base URL of a request to a route, None where there is none."""
    base = urlsplit(address.route.url or "").path.rstrip("/")
    path = address.target.partition("?")[0]
    if base and (repeated := _repeated(path, base)) is not None:
        return BaseUrlFault("upstream", repeated)
    return _fault_at(address.route.name, path, base)


def fault_without_route(address: RequestAddress) -> BaseUrlFault | None:
    """The mistake in the base URL of a request that no route takes.

    The paths are those of LLM APIs, and their versions at the root lead to routes.
    """
    path = address.target.partition("?")[0]
    if address.route.name != DEFAULT_ROUTE:
        return None
    if path in _WITHOUT_VERSION:
        return BaseUrlFault("missing", "/v1")
    for prefix in _DOUBLED:
        rest = path.removeprefix(prefix)
        if path.startswith(f"{prefix}{prefix}/") and owner(rest, ()) is not None:
            return BaseUrlFault("doubled", prefix)
    return None


def _fault_at(provider: str, path: str, base: str) -> BaseUrlFault | None:
    """The mistake in a path below a provider's route.

    `base` is the path of the route's URL. If `base` is no part of the API's prefix, the service
    may have other paths, and only a doubled prefix counts as an error.
    """
    prefixes = PROVIDERS[provider].prefixes if provider in PROVIDERS else ()
    if base and not any(_is_at_or_below(prefix.path, base) for prefix in prefixes):
        base, prefixes = "", tuple(Prefix(prefix.path) for prefix in prefixes)
    written = base + path
    for prefix in prefixes:
        if (doubled := _doubled(written, prefix.path)) is not None:
            return BaseUrlFault("doubled", doubled[len(base) :])
        for head in _incomplete(prefix.path):
            if written.startswith(head) and _is_endpoint(written[len(head) :], prefix):
                return BaseUrlFault("missing", prefix.path[len(base) :])
    return None


def _repeated(path: str, base: str) -> str | None:
    """The version in which the path of the route's URL ends and with which the target begins.

    The service may be any, so the target must be a path that an LLM API has.
    """
    for prefix in _KNOWN_PREFIXES:
        if base.endswith(prefix) and path.startswith(f"{prefix}/"):
            known = owner(path, ()) is not None or api_of_path(path) is not None
            return prefix if known else None
    return None


def _doubled(path: str, prefix: str) -> str | None:
    """The right prefix of a path with a doubled prefix, or with a second version."""
    start, last = prefix.rpartition("/")[::2]
    for repeated in (prefix, f"/{last}"):
        if _is_at_or_below(path, prefix + repeated):
            return prefix
    second = _VERSION.match(path, len(prefix)) if path.startswith(prefix) else None
    return start + second[1] if second is not None and _VERSION.fullmatch(f"/{last}") else None


def _incomplete(prefix: str) -> Iterator[str]:
    """The incomplete forms of a prefix such as `/openai/v1`: each part alone, and nothing."""
    first, last = f"/{prefix.split('/')[1]}", f"/{prefix.rpartition('/')[2]}"
    if first != last:
        yield prefix.removesuffix(last)
        yield prefix.removeprefix(first)
    yield ""


def _is_endpoint(rest: str, prefix: Prefix) -> bool:
    first, second, *_ = [*rest[1:].split("/", 2), ""]
    is_endpoint = first in prefix.endpoints or f"{first}/{second}" in prefix.endpoints
    return rest.startswith("/") and is_endpoint


def _is_at_or_below(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")
