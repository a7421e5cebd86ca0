"""`tapeway cassette`: what can be done with cassettes without a server."""

import click

from tapeway.cli.commands import Commands


class _All(Commands):
    names = ("ls", "show", "diff", "verify", "scan", "redact", "convert")


@click.group(cls=_All, no_args_is_help=False)
def cassette() -> None:
    """Look at cassettes and mend them, without a server."""
