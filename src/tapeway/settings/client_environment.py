"""The environment of programs that are to use the proxy: base URLs, dummy keys, and no proxy for it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from tapeway.core.http.routing import DEFAULT_ROUTE, RouteTable
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.hosts import HostRoutes
from tapeway.settings.options import Settings, resolve_routes

URL_VARIABLE, ADMIN_URL_VARIABLE = "TAPEWAY_URL", "TAPEWAY_ADMIN_URL"
"""Tell a program where the proxy and its admin API are; they set no option."""

COMMAND_VARIABLE = "TAPEWAY_BIN"
"""Tells libraries in other languages what the command is."""

DUMMY_KEY = "replay-needs-no-key"
LOOPBACK = ("127.0.0.1", "localhost")
_NO_PROXY = ("NO_PROXY", "no_proxy")


def client_environment(
    settings: Settings,
    url: str,
    admin_url: str | None,
    environ: Mapping[str, str],
    *,
    intercepted: bool = False,
) -> dict[str, str]:
    """The variables to set or change in `environ` for a program whose SDKs are to use the proxy.

    In mode replay each provider's key that is not set gets a dummy, since SDKs refuse to start
    without one. Where requests to services themselves are `intercepted`, SDKs keep their base URLs.
    """
    found = {URL_VARIABLE: url}
    if not intercepted:
        found |= base_urls(resolve_routes(settings, environ), url)
    if admin_url is not None:
        found[ADMIN_URL_VARIABLE] = admin_url
    for choice in settings.route:
        is_served = choice.name != "all" and not choice.off
        if is_served and not (intercepted and choice.name in PROVIDERS):
            found.setdefault(base_url_variable(choice.name), f"{url}/{choice.name}")
    if settings.mode == "replay":
        found |= dummy_keys(environ)
    return found | dict(_without_proxy(environ))


def base_urls(table: RouteTable, root: str, provider: str | None = None) -> dict[str, str]:
    """Each variable of an SDK with its base URL, for all providers that a route leads to, or for one."""
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
    # A default upstream that is no provider's own host may be a gateway to any of them.
    if table.default is not None and table.default.name in (DEFAULT_ROUTE, provider):
        return root
    return None


def base_url_variable(route: str) -> str:
    """`my-api` -> `MY_API_BASE_URL`."""
    return f"{re.sub('[^A-Z0-9]', '_', route.upper())}_BASE_URL"


def dummy_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """A dummy for each provider's key that is not set, under each name that an SDK insists on."""
    return {
        variable: DUMMY_KEY
        for provider in PROVIDERS.values()
        for variable, *others in (*provider.keys, *[(each,) for each in provider.further_keys])
        if not any(environ.get(name) for name in (variable, *others))
    }


def kept_past_proxy(variables: Mapping[str, str], hosts: HostRoutes) -> dict[str, str]:
    """The variables of what is reached past a proxy, without the routed hosts."""
    names = [each.lower() for each in hosts.names()]
    kept: dict[str, str] = {}
    for variable in _NO_PROXY:
        entries = [each for each in variables.get(variable, "").split(",") if each]
        kept[variable] = ",".join([each for each in entries if not _covers_any(each, names, hosts)])
    return kept


def _covers_any(entry: str, names: Sequence[str], hosts: HostRoutes) -> bool:
    """Whether an entry of NO_PROXY covers a routed host, as far as can be told from its text."""
    if entry in LOOPBACK:
        return False
    end = entry.partition(":")[0].removeprefix("*").strip(".").lower()
    covers = any(each == end or each.endswith(f".{end}") for each in names)
    return not end or covers or hosts.find(end, 443) is not None


def _without_proxy(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in _NO_PROXY:
        known = [each.strip() for each in environ.get(name, "").split(",") if each.strip()]
        yield name, ",".join(dict.fromkeys([*known, *LOOPBACK]))
