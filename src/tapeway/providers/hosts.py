"""The hosts whose requests `tapeway run --tls` serves from the cassette, and the route of each.

The hosts of a provider lead to the provider's route, even if the route has a different URL. For any
further route, the host of the route's URL leads there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tapeway.core.http.location import DEFAULT_PORTS, origin_at
from tapeway.core.http.routing import Route, RouteTable
from tapeway.providers.catalogue import PROVIDERS, Provider

_HTTPS_PORT = DEFAULT_PORTS["https"]


@dataclass(frozen=True, slots=True)
class RoutedHost:
    """A host, and the routes below its paths, the longest path first."""

    host: str
    port: int
    routes: tuple[tuple[str, Route], ...]

    def find(self, target: str) -> tuple[Route, str]:
        """The route of a request's target, and the target below it."""
        for path, route in self.routes:
            rest = target.removeprefix(path)
            if target.startswith(path) and rest[:1] in ("/", "?", ""):
                return route, rest if rest.startswith("/") else f"/{rest}"
        # Nothing is below the path of a route's URL, yet the host is the route's.
        _, route = self.routes[-1]
        return replace(route, url=origin_at("https", self.host, self.port)), target


class HostRoutes:
    """The routed hosts of a table of routes."""

    def __init__(self, table: RouteTable, environ: Mapping[str, str]) -> None:
        self._patterns: list[tuple[str, Route, bool]] = []
        """Patterns of hosts, each with its route; True where the client's own host is the upstream."""
        self._by_place: dict[tuple[str, int], list[tuple[str, Route]]] = {}
        for route in table:
            provider = PROVIDERS.get(route.name)
            if provider is not None:
                own = route.url in (None, provider.url_in(environ))
                for pattern in _hosts(provider):
                    self._patterns.append((pattern, route, own))
            if route.url is not None and route.url.startswith("https:"):
                parts = urlsplit(route.url)
                host_and_port = (parts.hostname or "", parts.port or _HTTPS_PORT)
                self._by_place.setdefault(host_and_port, []).append((parts.path.rstrip("/"), route))
        for routes in self._by_place.values():
            routes.sort(key=lambda row: -len(row[0]))

    def find(self, host: str, port: int) -> RoutedHost | None:
        """A host as a client names it; None where no route leads to it."""
        host = host.rstrip(".").lower()
        if (routes := self._by_place.get((host, port))) is not None:
            return RoutedHost(host, port, tuple(routes))
        for pattern, route, own in self._patterns if port == _HTTPS_PORT else ():
            if re.fullmatch(_regular(pattern), host):
                own_route = replace(route, url=f"https://{host}") if own else route
                return RoutedHost(host, port, (("", own_route),))
        return None

    def names(self) -> Iterator[str]:
        """The names at or below which the hosts are."""
        for host, _ in self._by_place:
            yield host
        for pattern, _, _ in self._patterns:
            *_, last = pattern.rpartition("*")
            yield last if last == pattern else last.partition(".")[2]


def _hosts(provider: Provider) -> Iterator[str]:
    if provider.url is not None and provider.url.startswith("https:"):
        yield urlsplit(provider.url).hostname or ""
    yield from provider.hosts


def _regular(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", "[a-z0-9-]+")
