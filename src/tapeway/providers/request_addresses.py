"""Where requests go: the routes' answer for each path, remembered.

The first line and the few fields that name a cassette or a provider, or say how the request is
framed, decide. The rest of a head is not remembered, so a field that differs in every request costs
nothing here.
"""

from dataclasses import replace
from functools import lru_cache

from tapeway.core.http.headers import CASSETTE_HEADER
from tapeway.core.http.request_line import origin_form
from tapeway.core.http.routing import (
    ProviderLookup,
    RequestAddress,
    RouteTable,
    named_cassette,
    resolve,
)
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import RequestFields
from tapeway.providers.base_urls import base_url_fault
from tapeway.providers.hosts import RoutedHost
from tapeway.providers.paths import PROVIDER_HEADERS

MOST_REMEMBERED = 1024
_DECIDE = (b"host", b"transfer-encoding", b"expect", CASSETTE_HEADER)


class RequestAddresses:
    """The addresses that requests of clients mean."""

    def __init__(self, routes: RouteTable, provider_of: ProviderLookup) -> None:
        self._routes = routes
        self._provider_of = provider_of
        self._found = lru_cache(maxsize=MOST_REMEMBERED)(self._find)

    def find(
        self, method: str, target: str, version: tuple[int, int], fields: RequestFields
    ) -> RequestAddress:
        """The address of a request. Raises RequestError if it cannot be forwarded."""
        return self._found(method, target, version, _routing_fields(fields))

    def find_at(
        self,
        host: RoutedHost,
        method: str,
        target: str,
        version: tuple[int, int],
        fields: RequestFields,
    ) -> RequestAddress:
        """The address of a request that the client sent to a service by name.

        A field alone can name the cassette. Raises RequestError as `find` does.
        """
        cassette, slot = named_cassette(fields)
        route, below = host.find(origin_form(method, target, version, fields))
        return RequestAddress(cassette, route, below, "", slot=slot)

    def _find(
        self, method: str, target: str, version: tuple[int, int], headers: Headers
    ) -> RequestAddress:
        fields = RequestFields(headers)
        path = origin_form(method, target, version, fields)
        address = resolve(self._routes, self._provider_of, path, fields)
        fault = base_url_fault(address)
        return address if fault is None else replace(address, base_url_fault=fault)


def _routing_fields(fields: RequestFields) -> Headers:
    """The fields that decide the route. Of a field that names a provider, only the name counts."""
    first = fields.first
    deciding = [(name, first[name]) for name in _DECIDE if name in first]
    deciding += [(name, b"") for name in PROVIDER_HEADERS if name in first]
    return tuple(deciding)
