"""`tapeway cassette convert`: cassettes in another format or place, with all losses named."""

import asyncio
import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import click

from tapeway.cli import terminal
from tapeway.cli.options import settings_options
from tapeway.cli.places import CassettePlace, opened
from tapeway.cli.secrets import report
from tapeway.cli.terminal import CLEAN, FOUND, UNREADABLE
from tapeway.cli.transfer import conversion, endpoints
from tapeway.cli.transfer.conversion import Converted
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import ConfigError, TapewayError
from tapeway.formats import registry
from tapeway.settings.options import process_secrets
from tapeway.settings.sources import load_settings
from tapeway.stores.opening import open_store

_FORMATS = click.Choice([kind.name for kind in registry.FORMATS])
_WRITTEN = click.Choice([kind.name for kind in registry.FORMATS if kind.save is not None])


@click.command()
@click.argument("source", metavar="A")
@click.argument("target", metavar="B")
@click.option("--all", "every", is_flag=True, help="A and B are stores: convert each cassette.")
@click.option("--from", "came", type=_FORMATS, help="The format of A. [what its text looks like]")
@click.option("--to", "goes", type=_WRITTEN, help="The format of B. [what its suffix says]")
@click.option("--force", is_flag=True, help="Replace B where it is there already.")
@click.option("--no-redact", is_flag=True, help="Leave secrets where they stand.")
@settings_options("store", "config")
def convert(
    source: str,
    target: str,
    every: bool,
    came: str | None,
    goes: str | None,
    force: bool,
    no_redact: bool,
    **flags: object,
) -> int:
    """Write cassette A as B: each a cassette's name in the store, a file, or STORE#NAME.

    \b
        tapeway cassette convert session.har smoke
        tapeway cassette convert smoke smoke.vcr.json --to vcr
        tapeway cassette convert smoke sqlite:./cassettes.db#smoke
        tapeway cassette convert --all ./cassettes sqlite:./cassettes.db

    \b
    Exit: 0 converted, 1 converted but for interactions that were left out or secrets that stay,
    2 something was not converted.

    What the other format cannot hold is named on standard error, with its place. Secrets are
    replaced as cassette redact does. B is read back and compared with A: how many interactions, and
    their digest. On its way into a store it goes on where it broke off when it is run again; a file
    of another format is written in one step at the end. What --force replaces stays until then.
    """
    if every and (came or goes):
        raise click.UsageError("--all is about stores, whose cassettes have no format of a file.")
    settings = load_settings(flags, os.environ, Path()).settings
    known = None if no_redact else KnownValues(process_secrets(settings, os.environ))
    try:
        if every:
            return asyncio.run(_all(source, target, known, force=force))
        one, other = endpoints.source(source, came), endpoints.target(target, goes)
        done = asyncio.run(
            conversion.convert(one, other, settings.store, known, _fresh(), force=force)
        )
    except TapewayError as exc:
        click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
        return UNREADABLE
    except KeyboardInterrupt:
        click.echo("tapeway: interrupted: what came across so far stays, run it again", err=True)
        return UNREADABLE
    return _tell(done)


async def _all(source: str, target: str, known: KnownValues | None, *, force: bool) -> int:
    code = CLEAN
    async with opened(open_store(source)) as one, opened(open_store(target)) as other:
        names = await one.names()
        if not names:
            raise ConfigError(f"there is no cassette in {one.url}")
        for name in names:
            came = CassettePlace(one, name, f"{one.url}#{name}")
            goes = CassettePlace(other, name, f"{other.url}#{name}")
            try:
                done = await conversion.copy(came, goes, known, force=force)
            except TapewayError as exc:
                click.echo(f"tapeway: {terminal.line(exc.message)}", err=True)
                code = UNREADABLE
            else:
                code = max(code, _tell(done))
            finally:
                await one.release(name)
                await other.release(name)
    return code


def _tell(done: Converted) -> int:
    for loss in done.losses:
        click.echo(f"tapeway: {loss}", err=True)
    report(done.found, "text")
    click.echo(f"{done.shown}: {done.kept} of {done.total} interactions, sha256:{done.digest}")
    return CLEAN if done.whole else FOUND


def _fresh() -> CassetteHead:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return CassetteHead(now, str(uuid4()), {"tapeway_version": version("tapeway")})
