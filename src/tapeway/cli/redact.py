"""`tapeway cassette redact`: take the secrets out of a cassette, in its place."""

import os
from pathlib import Path
from typing import Literal

import click

from tapeway.cli.examination import examine
from tapeway.cli.findings import CLEAN, FOUND, UNREADABLE, Found, report
from tapeway.cli.options import settings_options
from tapeway.cli.sources import load
from tapeway.cli.targets import Target, targets
from tapeway.core.known_values import KnownValues
from tapeway.core.model import CassetteHead
from tapeway.errors import TapewayError
from tapeway.formats.native import Document
from tapeway.settings import process_secrets
from tapeway.stores import pages
from tapeway.stores.pages import Pages

_REPLACED, _LEFT = "replaced", "still there"


@click.command()
@click.argument("cassettes", metavar="[NAME|FILE|FOLDER]...", nargs=-1)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config")
def redact(cassettes: tuple[str, ...], form: Literal["text", "json"], **flags: object) -> int:
    """Put placeholders where cassettes show secrets: in all of the store, or in those named.

    \b
    Exit: 0 none is left, 1 some are left and named, 2 something could not be read or written.

    What a scan finds is replaced as it would have been when it was recorded. Interactions that show
    nothing are left as they stand, files that show nothing are not touched. A cassette that
    somebody records into is refused.
    """
    settings = load(flags, os.environ, Path()).settings
    known = KnownValues(process_secrets(settings, os.environ))
    found: list[Found] = []
    code = CLEAN
    for target in targets(cassettes, settings.store):
        if target.beside is not None:
            continue
        try:
            found += _redacted(target, known)
        except TapewayError as exc:
            click.echo(f"tapeway: {exc.message}", err=True)
            code = UNREADABLE
    report(found, form)
    return code or (FOUND if any(each.deed == _LEFT for each in found) else CLEAN)


def _redacted(target: Target, known: KnownValues) -> list[Found]:
    found: list[Found] = []

    def change(cassette: Pages) -> tuple[CassetteHead, list[Document]] | None:
        seen = examine(cassette, known)
        found.extend([Found(target.shown, each, _REPLACED) for each in seen.replaced])
        found.extend([Found(target.shown, each, _LEFT) for each in seen.left])
        return (seen.head, seen.documents) if seen.replaced else None

    pages.rewrite(target.root, target.name, change)
    return found
