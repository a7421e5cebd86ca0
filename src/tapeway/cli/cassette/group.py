"""`tapeway cassette`: what can be done with cassettes without a server."""

import click

from tapeway.cli import terminal
from tapeway.cli.command_classes import Commands
from tapeway.cli.terminal import UNREADABLE
from tapeway.errors import CassetteLocked, StoreAway


class _CassetteCommands(Commands):
    names = ("ls", "show", "diff", "verify", "scan", "redact", "convert", "prune")

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (StoreAway, CassetteLocked) as exc:
            # Nothing is wrong with a cassette that cannot be had just now.
            click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
            return UNREADABLE


@click.group(cls=_CassetteCommands, no_args_is_help=False)
def cassette() -> None:
    """Look at cassettes and mend them, without a server."""
