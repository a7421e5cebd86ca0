"""`tapeway cassette rm`: delete cassettes."""

import asyncio
from collections.abc import Sequence

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import OpenStores, check_persistent, existing, locate
from tapeway.cli.options import cassette_command
from tapeway.errors import TapewayError
from tapeway.paging import CassetteRef
from tapeway.settings.options import Settings


@cassette_command(output_format=False)
@click.argument("cassettes", metavar="CASSETTE...", nargs=-1, required=True)
def rm(cassettes: tuple[str, ...], settings: Settings) -> int:
    """Delete cassettes, with their large bodies.

    \b
        tapeway cassette rm test_chat/test_old
        tapeway cassette rm --store sqlite:./cassettes.db smoke nightly

    \b
    Exit codes:
        0  all are deleted
        2  one could not be deleted, or there is none of its name; standard error says why

    A cassette into which somebody records is not deleted.
    """
    places = [locate(cassette, settings.store) for cassette in cassettes]
    for located in places:
        check_persistent(located.store)
        existing(located.store)
    errors = asyncio.run(_remove(places))
    for error in errors:
        terminal.print_error(error)
    return terminal.NOT_DONE if errors else terminal.DONE


async def _remove(places: Sequence[CassetteRef]) -> list[str]:
    """What could not be deleted, and why."""
    errors: list[str] = []
    async with OpenStores() as stores:
        for address in places:
            try:
                async with stores.cassette(address) as cassette:
                    if not await cassette.store.remove(cassette.name):
                        raise await cassette.missing()
            except TapewayError as exc:
                errors.append(f"{address.shown}: {exc.message}")
                continue
            click.echo(f"{terminal.line(address.shown)} is deleted")
    return errors
