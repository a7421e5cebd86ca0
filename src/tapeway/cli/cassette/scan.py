"""`tapeway cassette scan`: does a cassette show a secret?"""

import asyncio
import os
from pathlib import Path
from typing import Literal

import click

from tapeway.cli import secrets, terminal
from tapeway.cli.options import settings_options
from tapeway.cli.places import Stored, Target, opened, targets
from tapeway.cli.secrets import FoundSecret, examine, examine_file, report
from tapeway.cli.terminal import CLEAN, FOUND, UNREADABLE
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import TapewayError
from tapeway.settings.options import process_secrets
from tapeway.settings.sources import load_settings
from tapeway.stores.file import offline


@click.command()
@click.argument("cassettes", metavar="[NAME|FILE|FOLDER|STORE#NAME]...", nargs=-1)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("--strict", is_flag=True, help="Refuse files that are no cassettes.")
@settings_options("store", "config")
def scan(
    cassettes: tuple[str, ...], form: Literal["text", "json"], strict: bool, **flags: object
) -> int:
    """Look for secrets in cassettes: all of the store, or those named.

    \b
    Exit: 0 none found, 1 some found, 2 something could not be looked at.

    Found are values of credential variables in the environment, known shapes of keys and tokens, and
    whatever stands under the name of a credential; in headers, URLs and bodies, also encoded ones.
    """
    settings = load_settings(flags, os.environ, Path()).settings
    known = KnownValues(process_secrets(settings, os.environ))
    found: list[FoundSecret] = []
    code = CLEAN
    for target in targets(cassettes, settings.store, strict=strict):
        try:
            found += _found(target, known)
        except TapewayError as exc:
            click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
            code = UNREADABLE
    report(found, form)
    return code or (FOUND if found else CLEAN)


def _found(target: Target | Stored, known: KnownValues) -> list[FoundSecret]:
    if isinstance(target, Stored):
        seen = asyncio.run(_of_stored(target, known))
        return [FoundSecret(target.place.shown, each) for each in seen]
    if target.beside is not None:
        seen = examine_file(target.beside, known)
    else:
        seen = examine(offline.read(target.root, target.name), known).findings
    return [FoundSecret(target.shown, each) for each in seen]


async def _of_stored(target: Stored, known: KnownValues) -> list[Finding]:
    async with opened(target.place.store):
        return (await secrets.examine_place(target.place, known)).findings
