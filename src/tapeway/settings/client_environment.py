"""Base URLs and keys of the SDKs whose programs are to use the proxy, from the settings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tapeway.core.http.location import DEFAULT_PORTS
from tapeway.core.http.routing import DEFAULT_ROUTE, RouteTable
from tapeway.embedded.client_variables import LOOPBACK, NO_PROXY, ClientSetup, client_variables
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.hosts import HostRoutes
from tapeway.settings.options import Settings, resolve_routes

KEY_VARIABLES = tuple(
    names
    for provider in PROVIDERS.values()
    for names in (*provider.keys, *[(name,) for name in provider.further_keys])
)
"""The names of each provider's key, and each name that an SDK insists on."""


def client_environment(
    settings: Settings,
    url: str,
    admin_url: str | None,
    environ: Mapping[str, str],
    *,
    intercepted: bool = False,
) -> dict[str, str]:
    """The variables to set or change in `environ` for a program whose SDKs are to use the proxy.

    In mode replay each provider's unset key gets a dummy, since SDKs refuse to start without a key.
    Where requests to services themselves are `intercepted`, SDKs keep their base URLs.
    """
    if intercepted:
        named = [name for name in served_routes(settings) if name not in PROVIDERS]
        setup = ClientSetup(_named_urls(named, ""), {}, KEY_VARIABLES)
    else:
        setup = ClientSetup.of(clients(settings, environ))
    dummies = settings.mode == "replay"
    return client_variables(setup, url, admin_url, environ, dummies=dummies)


def clients(settings: Settings, environ: Mapping[str, str]) -> dict[str, Any]:
    """How clients reach a proxy with these settings, in the form of the admin API, without a URL."""
    return clients_of(
        resolve_routes(settings, environ), served_routes(settings), "", settings.record_command
    )


def clients_of(
    table: RouteTable, named: Iterable[str], proxy: str, record_command: str | None
) -> dict[str, Any]:
    """How clients reach a proxy at a URL; `named` are the routes named in the settings."""
    return {
        "proxy": proxy,
        "base_urls": {**_named_urls(named, proxy), **base_urls(table, proxy)},
        "routes": {
            name: f"{proxy}/{name}{_suffix(name)}" for name in sorted({*PROVIDERS, *table.routes})
        },
        "keys": [list(names) for names in KEY_VARIABLES],
        "record_command": record_command,
    }


def served_routes(settings: Settings) -> list[str]:
    """The served routes that the settings name."""
    return [route.name for route in settings.route if route.name != "all" and not route.off]


def _named_urls(names: Iterable[str], root: str) -> dict[str, str]:
    return {base_url_variable(name): f"{root}/{name}" for name in names}


def _suffix(route: str) -> str:
    provider = PROVIDERS.get(route)
    return provider.variables[0][1] if provider is not None and provider.variables else ""


def base_urls(table: RouteTable, root: str, provider: str | None = None) -> dict[str, str]:
    """Each variable of an SDK with a base URL, for a provider or for all providers with a route."""
    return {
        variable: base + suffix
        for name, built_in in PROVIDERS.items()
        if provider in (None, name) and (base := route_url(table, root, name)) is not None
        for variable, suffix in built_in.variables
    }


def route_url(table: RouteTable, root: str, provider: str) -> str | None:
    """The URL of a provider's route on the proxy, None where no route leads to it."""
    if provider in table.routes:
        return f"{root}/{provider}"
    # A default upstream that is no provider's host may be a gateway to any provider.
    if table.default is not None and table.default.name in (DEFAULT_ROUTE, provider):
        return root
    return None


def base_url_variable(route: str) -> str:
    """`my-api` -> `MY_API_BASE_URL`."""
    return f"{re.sub('[^A-Z0-9]', '_', route.upper())}_BASE_URL"


def kept_past_proxy(variables: Mapping[str, str], hosts: HostRoutes) -> dict[str, str]:
    """The variables of what is reached past a proxy, without the routed hosts."""
    names = [name.lower() for name in hosts.names()]
    kept: dict[str, str] = {}
    for variable in NO_PROXY:
        entries = [part for part in variables.get(variable, "").split(",") if part]
        kept[variable] = ",".join(
            [entry for entry in entries if not _covers_any(entry, names, hosts)]
        )
    return kept


def _covers_any(entry: str, names: Sequence[str], hosts: HostRoutes) -> bool:
    """Whether an entry of NO_PROXY covers a routed host, as far as can be told from its text."""
    if entry in LOOPBACK:
        return False
    end = entry.partition(":")[0].removeprefix("*").strip(".").lower()
    covers = any(name == end or name.endswith(f".{end}") for name in names)
    return not end or covers or hosts.find(end, DEFAULT_PORTS["https"]) is not None
