"""`tapeway env`: print the environment variables that point each SDK at the proxy."""

import os
import shlex
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import click

from tapeway.cli.options import command, load
from tapeway.core.http.routing import RouteTable, valid_cassette_name
from tapeway.embedded.admin_client import AdminClient, DeckError
from tapeway.embedded.client_variables import ADMIN_URL_VARIABLE
from tapeway.errors import ConfigError, TapewayError
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.clients import CLIENTS_WITHOUT_VARIABLE
from tapeway.settings.client_environment import base_urls, route_url
from tapeway.settings.options import Settings, resolve_routes

_PATIENCE_S = 10.0
"""The first admin call of a tapeway takes a while on a busy machine; something else at its port may
never answer."""


@command(
    *("listen", "admin_listen", "admin_token", "admin_tls", "upstream", "route"),
    *("tls_cert", "tls_key", "config"),
)
@click.option("--provider", metavar="NAME", help="Print only the variables of this route.")
@click.option("--cassette", metavar="NAME", help="Record to and replay from this cassette only.")
@click.option("--notes", is_flag=True, help="Name the clients that read no variable.")
def env(provider: str | None, cassette: str | None, *, notes: bool, **flags: object) -> int:
    """Print the export lines that point each SDK at the proxy.

    \b
        eval "$(tapeway env)"
        eval "$(tapeway env --provider openai --cassette smoke)"
        tapeway env --notes

    The address is that of --listen, TAPEWAY_LISTEN or tapeway.toml. Where none of them says it, and where
    TAPEWAY_ADMIN_URL is set, a running tapeway is asked: there, or at --admin-listen. If none answers within
    10 seconds, standard error says which address is assumed; where TAPEWAY_ADMIN_URL or the flag
    --admin-listen says whom to ask, nothing is assumed. Some clients read no variable: --notes says on
    standard error what to write instead.

    \b
    Exit codes:
        0  printed
        1  no tapeway answers where TAPEWAY_ADMIN_URL or the flag --admin-listen says
        2  an option is invalid, or there is no such route
    """
    settings = load(flags)
    prefix = _prefix(cassette)
    proxy, assumption = _proxy(settings, flags)
    root = proxy + prefix
    for line in [*_lines(settings, root, provider)]:
        click.echo(line)
    if assumption is not None:
        click.echo(assumption, err=True)
    for note in _notes(settings, root, provider) if notes else ():
        click.echo(note, err=True)
    return 0


def _lines(settings: Settings, root: str, provider: str | None) -> Iterator[str]:
    table = resolve_routes(settings, os.environ)
    base = None if provider is None else route_url(table, root, provider)
    if provider is not None and base is None:
        raise ConfigError(_no_route(table, provider))
    exports = base_urls(table, root, provider)
    if not exports:
        yield f"# no variable is known for {provider}: give its client the base URL {base}"
    for name, value in exports.items():
        yield f"export {name}={shlex.quote(value)}"


def _notes(settings: Settings, root: str, provider: str | None) -> Iterator[str]:
    """The code for each client that reads no variable."""
    table = resolve_routes(settings, os.environ)
    for client in CLIENTS_WITHOUT_VARIABLE:
        if provider in (None, client.provider) and (url := route_url(table, root, client.provider)):
            yield f"{client.name}: write {client.instead.replace('{url}', url)}"


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


def _proxy(settings: Settings, flags: Mapping[str, object]) -> tuple[str, str | None]:
    """The URL of the proxy, and a sentence if it is assumed.

    Raises ConfigError. Raises TapewayError where the tapeway that the user names does not answer.
    """
    admin_url = None if _is_known(settings, flags) else _admin_url(settings)
    if admin_url is None:
        return _root(settings), None
    try:
        return _asked(settings, admin_url), None
    except DeckError as exc:
        if flags["admin_listen"] or os.environ.get(ADMIN_URL_VARIABLE):
            kind = ConfigError if exc.code == "bad_url" else TapewayError
            # What an answer says does not tell who gave it.
            said = f"{admin_url} answers: {exc}" if exc.status else str(exc)
            raise kind(f"{said}; --listen prints the lines for an address without asking") from exc
    root = _root(settings)
    return root, f"no tapeway could be asked at {admin_url}: assuming that the proxy is at {root}"


def _is_known(settings: Settings, flags: Mapping[str, object]) -> bool:
    """Whether the user says where the proxy is."""
    if flags["listen"]:
        return True
    configured = "listen" in settings.given and settings.listen.port != 0
    return configured and not os.environ.get(ADMIN_URL_VARIABLE)


def _asked(settings: Settings, url: str) -> str:
    """Where the tapeway behind an admin API serves its proxy. Raises DeckError."""
    certificate = settings.tls_cert if settings.admin_tls else None
    token = settings.admin_token
    client = AdminClient(url, token, certificate=certificate, timeout_s=_PATIENCE_S)
    try:
        return str(client.call("GET", "clients")["proxy"])
    except (ValueError, LookupError, TypeError):
        raise DeckError(f"what answers at {url} is not the admin API of a tapeway") from None


def _admin_url(settings: Settings) -> str | None:
    if given := os.environ.get(ADMIN_URL_VARIABLE):
        return given
    admin = settings.admin_listen
    if admin is None or admin.port == 0:
        return None
    return f"{'https' if settings.admin_tls else 'http'}://{admin.from_here}"


def _root(settings: Settings) -> str:
    listen = settings.listen
    if listen.port == 0:
        raise ConfigError("--listen: port 0 is chosen when the proxy starts; give its real port")
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{listen.from_here}"
