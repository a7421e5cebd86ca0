"""`tapeway cassette`: inspect and edit cassettes offline, in any store."""

from collections.abc import Mapping

import click

from tapeway.cli import terminal
from tapeway.cli.command_classes import Commands
from tapeway.cli.terminal import UNREADABLE
from tapeway.errors import CassetteLocked, StoreAway


class _CassetteCommands(Commands):
    modules: Mapping[str, str] = {
        "ls": "tapeway.cli.cassette.ls",
        "show": "tapeway.cli.cassette.show",
        "diff": "tapeway.cli.cassette.diff",
        "verify": "tapeway.cli.cassette.verify",
        "scan": "tapeway.cli.cassette.scan",
        "redact": "tapeway.cli.cassette.redact",
        "convert": "tapeway.cli.cassette.convert",
        "prune": "tapeway.cli.cassette.prune",
    }

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (StoreAway, CassetteLocked) as exc:
            # Nothing is wrong with a cassette that cannot be had just now.
            click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
            return UNREADABLE


@click.group(cls=_CassetteCommands, no_args_is_help=False)
def cassette() -> None:
    """Inspect and edit cassettes offline, in any store."""
