"""A command that a recipe adds."""

import click


@click.command()
def dummy() -> None:
    """Say that it was added."""
    click.echo("added from outside")
