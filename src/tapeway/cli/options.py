"""The flags of commands, made from the fields of Settings, and the settings they result in.

`command` makes a click command with the flags of some options. `cassette_command` makes one of the
commands of `tapeway cassette`, which share `--format`, `--store`, `--config` and their exit codes.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import click

from tapeway.cli import terminal
from tapeway.core.redaction.credentials import environment_credentials
from tapeway.embedded.client_variables import ADMIN_URL_VARIABLE
from tapeway.errors import CassetteLocked, StoreAway, TapewayError
from tapeway.logs import configure
from tapeway.settings.options import OPTION_OF, Option, Settings, known_secrets
from tapeway.settings.sources import OPTIONS, REMOVED, flag_of, load_settings

OutputFormat = Literal["text", "json"]
_MakeCommand = Callable[[Callable[..., int]], click.Command]

format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Print text or JSON. [text]",
)
"""`--format`, passed as `output_format`."""

_ADMIN_URL = "http://127.0.0.1:8081"
admin_option = click.option(
    "--admin",
    metavar="URL",
    help=f"Admin API of the running tapeway. [{ADMIN_URL_VARIABLE}, else {_ADMIN_URL}]",
)
"""`--admin`, for a command that asks a running tapeway; `admin_url` reads it."""

log = logging.getLogger(__name__)


GROUPS: Mapping[str, Sequence[str]] = {
    "Listeners": (
        *("listen", "admin_listen", "admin_token", "admin_tls", "tls_cert", "tls_key", "tls"),
        *("page_url", "allow_origin", "allow_host"),
        *("body_timeout", "send_timeout", "drain_timeout"),
    ),
    "What is recorded and replayed": (
        *("mode", "cassette", "delivery", "pace", "repeats", "presets", "record_failures"),
        *("require_marks", "record_headers", "record_statuses", "miss_status", "hooks", "max_body"),
        *("rewrite", "websocket", "not_secret", "max_age", "prices"),
    ),
    "Services": (
        *("upstream", "route", "sign", "connect_timeout", "upstream_timeout", "allow_address"),
        *("upstream_proxy", "upstream_ca", "upstream_cert", "insecure_upstream"),
    ),
    "Stores, settings and logs": (
        *("store", "store_token", "store_ca", "config", "journal_size"),
        *("log_format", "log_level", "access_log", "record_command"),
    ),
}
"""The sections of the help of commands that serve."""


def command(
    *names: str,
    but: Collection[str] = (),
    cls: type[click.Command] = click.Command,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> _MakeCommand:
    """A decorator for a click command with the flags of the named options.

    Without names, the command has the flags of all options except `but`.

    The help shows `defaults` where the command has others than `serve`. The function gets the values as written, None for a flag that is not given.
    """

    def make(function: Callable[..., int]) -> click.Command:
        made = click.command(cls=cls)(function)
        made.params += _flags(names, but, defaults)
        return made

    return make


def cassette_command(
    *names: str,
    output_format: bool = True,
    every_error: bool = True,
    in_store: Callable[[str], bool] | None = None,
    has_store: bool = True,
) -> _MakeCommand:
    """A decorator for a command of `tapeway cassette`, with the flags of these options.

    The function gets `settings`, `output_format` and the command's arguments. An error of tapeway
    ends the command with one line and NOT_DONE, since 1 means that something was found. Without
    `every_error` only an unreachable store or a locked cassette does so, and `main` gives exit
    codes to the remaining errors. A command that reads files alone has no `--store`. `in_store`
    says whether an argument is looked up in `--store`: the flag is refused where it would be
    ignored. By default names are looked up.
    """
    flags = _flags(("store", "config", *names) if has_store else ("config", *names))

    def make(function: Callable[..., int]) -> click.Command:
        @wraps(function)
        def run(**arguments: object) -> int:
            values = {str(flag.name): arguments.pop(str(flag.name)) for flag in flags}
            if values.get("store") is not None:
                context = click.get_current_context()
                check_store_is_asked(context, _arguments_of(context), in_store)
            settings = load(values)
            try:
                return function(settings=settings, **arguments)
            except TapewayError as exc:
                if not every_error and not isinstance(exc, StoreAway | CassetteLocked):
                    raise
                terminal.print_error(exc.message)
                return terminal.NOT_DONE

        made = click.command()(run)
        if output_format:
            format_option(made)
        made.params += flags
        return made

    return make


def check_store_is_asked(
    context: click.Context, given: Sequence[str], in_store: Callable[[str], bool] | None = None
) -> None:
    """Raise UsageError if a command with `--store` is given a file, and no name in the store.

    Beside STORE#NAME alone `--store` is no error: the flag says which store a token is for.
    """
    # Only here: it imports formats and stores.
    from tapeway.cli.cassette_arguments import is_address, is_in_store

    file = next((argument for argument in given if not is_address(argument)), None)
    if file is not None and not any(map(in_store or is_in_store, given)):
        raise click.UsageError(
            f"--store is not used, because the argument names a file: {file}. Leave out --store, or "
            "give the cassette's name in it.",
            context,
        )


def _arguments_of(context: click.Context) -> list[str]:
    """The texts that a command was given as arguments."""
    texts: list[str] = []
    for parameter in context.command.params:
        if isinstance(parameter, click.Argument):
            value = context.params.get(str(parameter.name))
            values = value if isinstance(value, tuple) else (value,)
            texts += [argument for argument in values if isinstance(argument, str)]
    return texts


def admin_url(given: str | None) -> str:
    """The URL of the admin API by `--admin`, or else by the environment or the default."""
    return given or os.environ.get(ADMIN_URL_VARIABLE) or _ADMIN_URL


def load(flags: Mapping[str, object]) -> Settings:
    """The settings of these flags, the environment and tapeway.toml; prints warnings about them.

    Raises ConfigError.
    """
    loaded = load_settings(flags, os.environ, Path())
    for warning in loaded.warnings:
        terminal.print_error(f"warning: {warning}")
    return loaded.settings


def prepare(flags: Mapping[str, object]) -> Settings:
    """The settings for a command that serves; also sets up logging, which masks known secrets."""
    loaded = load_settings(flags, os.environ, Path())
    settings = loaded.settings
    credentials = [value for _, value in environment_credentials(os.environ)]
    configure(settings.log_format, settings.log_level, [*known_secrets(settings), *credentials])
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return settings


def _flags(
    names: tuple[str, ...],
    but: Collection[str] = (),
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> list[click.Parameter]:
    if "store" in names:
        # Another tapeway as the store needs these.
        names += ("store_token", "store_ca")
    removed = () if names else REMOVED
    return [
        *(
            _flag(name, option, defaults.get(name, option.default))
            for name, option in OPTION_OF.items()
            if name in OPTIONS and name not in but and (not names or name in names)
        ),
        # Taken only to say what to do instead.
        *(click.Option([flag_of(name), name], hidden=True) for name in removed),
    ]


def _flag(name: str, option: Option, shown: str | None) -> click.Option:
    flag = flag_of(name)
    default = f" [{shown}]" if shown else ""
    description = f"{option.description}{default}".replace("`", "")
    if option.flag:
        switch = f"{flag}/--no-{flag[2:]}"
        return click.Option([switch, name], default=None, help=description)
    return click.Option(
        [flag, name],
        metavar=option.metavar,
        multiple=option.repeatable,
        help=description,
    )
