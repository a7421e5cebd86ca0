"""`tapeway cassette convert`: a cassette in another format or place, with all losses named."""

import asyncio
import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import click

from tapeway.cli import conversion
from tapeway.cli.conversion import LEFT, Converted
from tapeway.cli.findings import CLEAN, FOUND, UNREADABLE, report
from tapeway.cli.options import settings_options
from tapeway.cli.sources import load
from tapeway.core.known_values import KnownValues
from tapeway.core.model import CassetteHead
from tapeway.errors import TapewayError
from tapeway.formats import kinds
from tapeway.settings import process_secrets

_FORMATS = click.Choice([kind.name for kind in kinds.KINDS])
_WRITTEN = click.Choice([kind.name for kind in kinds.KINDS if kind.save is not None])


@click.command()
@click.argument("source", metavar="A")
@click.argument("target", metavar="B")
@click.option("--from", "came", type=_FORMATS, help="The format of A. [what its text looks like]")
@click.option("--to", "goes", type=_WRITTEN, help="The format of B. [what its suffix says]")
@click.option("--force", is_flag=True, help="Replace B where it is there already.")
@click.option("--no-redact", is_flag=True, help="Leave secrets where they stand.")
@settings_options("store", "config")
def convert(
    source: str,
    target: str,
    came: str | None,
    goes: str | None,
    force: bool,
    no_redact: bool,
    **flags: object,
) -> int:
    """Write cassette A as B: each a cassette's name in the store, or a file.

    \b
        tapeway cassette convert session.har smoke
        tapeway cassette convert smoke smoke.vcr.json --to vcr

    \b
    Exit: 0 converted, 1 converted but for interactions that were left out or secrets that stay,
    2 nothing was converted.

    What the other format cannot hold is named on standard error, with its place. Secrets are
    replaced as cassette redact does. B is read back and compared with A.
    """
    settings = load(flags, os.environ, Path()).settings
    known = None if no_redact else KnownValues(process_secrets(settings, os.environ))
    try:
        one, other = conversion.source(source, came), conversion.target(target, goes)
        done = asyncio.run(
            conversion.convert(one, other, settings.store, known, _fresh(), force=force)
        )
    except TapewayError as exc:
        click.echo(f"tapeway: {exc.message}", err=True)
        return UNREADABLE
    _tell(done, target)
    stays = any(each.deed == LEFT for each in done.found)
    return FOUND if stays or done.kept < done.total else CLEAN


def _tell(done: Converted, target: str) -> None:
    for loss in done.losses:
        click.echo(f"tapeway: {loss}", err=True)
    report(done.found, "text")
    click.echo(f"{target}: {done.kept} of {done.total} interactions, sha256:{done.digest}")


def _fresh() -> CassetteHead:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return CassetteHead(now, str(uuid4()), {"tapeway_version": version("tapeway")})
