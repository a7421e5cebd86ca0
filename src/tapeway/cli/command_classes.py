"""Click classes of our own.

A group imports a command when it is asked for: to import the server takes longer than most
commands run. `Around` is a command that takes another one behind `--`.
"""

from collections.abc import Mapping
from importlib import import_module

import click

_KEY = "tapeway.command"


class Commands(click.Group):
    """Commands by name, with the module of each: there the command has the same name."""

    modules: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        command: click.Command = getattr(import_module(self.modules[cmd_name]), cmd_name)
        return command


class Around(click.Command):
    """Keeps what stands behind the first `--` apart from its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def command_of(context: click.Context) -> tuple[str, ...] | None:
    """The command behind `--`, None where there is no `--`. Raises UsageError for an empty one."""
    found: tuple[str, ...] | None = context.meta.get(_KEY)
    if found == ():
        raise click.UsageError("there is no command behind --.", context)
    return found
