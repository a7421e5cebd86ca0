"""A base URL with a `/v1` too many or too few, forgiven where the provider knows no such path."""

from dataclasses import replace
from urllib.parse import urlsplit

from tapeway.core.http.routing import DEFAULT, RequestAddress, RouteTable, Slip
from tapeway.providers.paths import owner
from tapeway.providers.prefixes import mended

_UNNAMED = {
    "/chat/completions": "openai",
    "/embeddings": "openai",
    "/messages": "anthropic",
    "/responses": "openai",
}
"""The paths one provider alone has a version below; `/models` is a path of many services."""

_DOUBLED = ("/v1", "/v1beta", "/api")


def forgive(address: RequestAddress, table: RouteTable) -> RequestAddress:
    """The address that was meant; the very one that was given where it needs no forgiving."""
    route = address.route
    if route.name == DEFAULT:
        provider = _meant(address.target) if address.guessed else None
        if provider is None or provider not in table.routes:
            return address
        route = table.routes[provider]
    base = urlsplit(route.url or "").path.rstrip("/")
    found = mended(route.name, address.target, base)
    if found is None:
        return address
    slip = Slip(found.slip, found.prefix, address.target)
    return replace(address, route=route, target=found.target, slip=slip)


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
