"""`tapeway cassette`: what can be done with cassettes without a server."""

import click

from tapeway.cli.convert import convert
from tapeway.cli.redact import redact
from tapeway.cli.scan import scan


@click.group()
def cassette() -> None:
    """Look at cassettes and mend them, without a server."""


cassette.add_command(scan)
cassette.add_command(redact)
cassette.add_command(convert)
