"""`tapeway env`: print the environment variables that point each SDK at the proxy."""

import shlex
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import click

from tapeway.cli.options import command, load
from tapeway.core.http.routing import DEFAULT_ROUTE, RouteTable, valid_cassette_name
from tapeway.errors import ConfigError
from tapeway.providers.catalogue import PROVIDERS
from tapeway.settings.options import Settings, resolve_routes
from tapeway.settings.parsers import HostPort


@command("listen", "upstream", "route", "config")
@click.option("--provider", metavar="NAME", help="Print only the variables of this route.")
@click.option("--cassette", metavar="NAME", help="Record to and replay from this cassette only.")
def env(provider: str | None, cassette: str | None, **flags: object) -> int:
    """Print the export lines that point each SDK at the proxy.

    \b
        eval "$(tapeway env)"
        eval "$(tapeway env --provider openai --cassette smoke)"

    Address and routes are those of a proxy started with tapeway serve in this directory.
    """
    settings = load(flags).settings
    root = _root(settings.listen) + _prefix(cassette)
    for line in _lines(settings, root, provider):
        click.echo(line)
    return 0


def variables(table: RouteTable, root: str, provider: str | None = None) -> Mapping[str, str]:
    """Each variable with its base URL, for all providers that a route leads to, or for one."""
    return {
        variable: base + suffix
        for name, built_in in PROVIDERS.items()
        if provider in (None, name) and (base := _base(table, root, name)) is not None
        for variable, suffix in built_in.variables
    }


def _lines(settings: Settings, root: str, provider: str | None) -> Iterator[str]:
    table = resolve_routes(settings)
    base = None if provider is None else _base(table, root, provider)
    if provider is not None and base is None:
        raise ConfigError(_no_route(table, provider))
    exports = variables(table, root, provider)
    if not exports:
        yield f"# no variable is known for {provider}: give its client the base URL {base}"
    for name, value in exports.items():
        yield f"export {name}={shlex.quote(value)}"


def _base(table: RouteTable, root: str, provider: str) -> str | None:
    if provider in table.routes:
        return f"{root}/{provider}"
    # A default upstream that is no provider's own host may be a gateway to any of them.
    if table.default is not None and table.default.name in (DEFAULT_ROUTE, provider):
        return root
    return None


def _no_route(table: RouteTable, provider: str) -> str:
    if provider in PROVIDERS:
        return f"no route leads to {provider}: add --route {provider}"
    known = ", ".join(sorted({*PROVIDERS, *table.routes}))
    return f"--provider: '{provider}' is no route; use one of {known}"


def _prefix(cassette: str | None) -> str:
    if cassette is None:
        return ""
    if not valid_cassette_name(cassette):
        raise ConfigError(
            f"--cassette: {cassette!r} is no name of a cassette, such as suite/case-1"
        )
    return f"/@{quote(cassette, safe='')}"


def _root(listen: HostPort) -> str:
    if listen.port == 0:
        raise ConfigError("--listen: port 0 is chosen when the proxy starts; give its real port")
    # A listener on all addresses is reached from here on loopback.
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    return f"http://{HostPort(here.get(listen.host, listen.host), listen.port)}"
