"""A group of commands, each imported when it is asked for: to import the server takes longer than
most of them run.
"""

from importlib import import_module

import click


class Commands(click.Group):
    """The commands in `names`: each is what its module `tapeway.cli.NAME` calls NAME."""

    names: tuple[str, ...] = ()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.names:
            return None
        command: click.Command = getattr(import_module(f"tapeway.cli.{cmd_name}"), cmd_name)
        return command
