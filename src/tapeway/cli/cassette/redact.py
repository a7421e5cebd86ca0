"""`tapeway cassette redact`: take the secrets out of a cassette, in its place."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import secrets, terminal
from tapeway.cli.options import settings_options
from tapeway.cli.places import Stored, Target, opened, targets
from tapeway.cli.secrets import LEFT, REPLACED, Examination, FoundSecret, examine, report
from tapeway.cli.terminal import CLEAN, FOUND, UNREADABLE
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import TapewayError
from tapeway.formats.fields import Document
from tapeway.settings.options import process_secrets
from tapeway.settings.sources import load_settings
from tapeway.stores.file import offline
from tapeway.stores.file.offline import Pages


@click.command()
@click.argument("cassettes", metavar="[NAME|FILE|FOLDER|STORE#NAME]...", nargs=-1)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@settings_options("store", "config")
def redact(cassettes: tuple[str, ...], form: Literal["text", "json"], **flags: object) -> int:
    """Put placeholders where cassettes show secrets: in all of the store, or in those named.

    \b
    Exit: 0 none is left, 1 some are left and named, 2 something could not be read or written.

    What a scan finds is replaced as it would have been when it was recorded. Interactions that show
    nothing are left as they stand, files that show nothing are not touched. A file that somebody
    records into is refused; in a database, interactions are changed one by one.
    """
    settings = load_settings(flags, os.environ, Path()).settings
    known = KnownValues(process_secrets(settings, os.environ))
    found: list[FoundSecret] = []
    code = CLEAN
    for target in targets(cassettes, settings.store):
        try:
            found += _redacted(target, known)
        except TapewayError as exc:
            click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
            code = UNREADABLE
    report(found, form)
    return code or (FOUND if any(each.deed == LEFT for each in found) else CLEAN)


def _redacted(target: Target | Stored, known: KnownValues) -> list[FoundSecret]:
    if isinstance(target, Stored):
        return _told(asyncio.run(_in_its_store(target, known)), target.place.shown)
    if target.beside is not None:
        return []
    found: list[FoundSecret] = []

    def change(cassette: Pages) -> tuple[CassetteHead, list[Document]] | None:
        seen = examine(cassette, known)
        found.extend(_told(seen, target.shown))
        return (seen.head, seen.documents) if seen.replaced else None

    offline.rewrite(target.root, target.name, change)
    return found


async def _in_its_store(target: Stored, known: KnownValues) -> Examination:
    async with opened(target.place.store):
        return await secrets.mend(target.place, known)


def _told(seen: Examination, shown: str) -> list[FoundSecret]:
    replaced = [FoundSecret(shown, each, REPLACED) for each in seen.replaced]
    return replaced + [FoundSecret(shown, each, LEFT) for each in seen.left]
