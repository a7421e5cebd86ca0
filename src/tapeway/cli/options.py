"""The flags, made from the fields of Settings.

What comes before anything is served: settings out of all sources, and a log that hides them.
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click
from pydantic.fields import FieldInfo

from tapeway.core.redaction.credentials import environment_credentials
from tapeway.logs import configure
from tapeway.settings.options import Settings, Written, known_secrets
from tapeway.settings.sources import OPTIONS, flag_of, load_settings

F = TypeVar("F", bound=Callable[..., object])
log = logging.getLogger(__name__)


def settings_options(*names: str, but: str | None = None) -> Callable[[F], F]:
    """A decorator that adds the flags of these options, or of all of them `but` one.

    The values stay as written, and None where a flag is not given: other sources come after.
    With a store comes what another tapeway is called with.
    """
    if "store" in names:
        names += ("store_token", "store_ca")

    def add(function: F) -> F:
        for name, field in reversed(Settings.model_fields.items()):
            if name in OPTIONS and name != but and (not names or name in names):
                function = _option(name, field)(function)
        return function

    return add


def written(field: FieldInfo) -> Written:
    """How the values of a field are written."""
    return next(entry for entry in field.metadata if isinstance(entry, Written))


def _option(name: str, field: FieldInfo) -> Callable[[F], F]:
    shape, flag = written(field), flag_of(name)
    default = f" [{field.default}]" if field.default else ""
    description = f"{field.description}{default}".replace("`", "")
    if shape.flag:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=description)
    return click.option(
        flag, name, metavar=shape.metavar, multiple=shape.repeatable, help=description
    )


def prepare(flags: Mapping[str, object]) -> Settings:
    """The settings these flags, the environment and the file make, with logging set up for them.

    Raises ConfigError.
    """
    loaded = load_settings(flags, os.environ, Path())
    settings = loaded.settings
    credentials = [value for _, value in environment_credentials(os.environ)]
    configure(settings.log_format, settings.log_level, [*known_secrets(settings), *credentials])
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return settings
