"""`tapeway cassette redact`: replace the secrets in cassettes."""

import os

import click

from tapeway.cli import secrets, terminal
from tapeway.cli.cassette_arguments import is_target_in_store
from tapeway.cli.options import OutputFormat, cassette_command
from tapeway.settings.options import Settings, known_values


@cassette_command(in_store=is_target_in_store)
@click.argument("cassettes", metavar="[NAME|FILE|FOLDER|STORE#NAME]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only list what would be replaced.")
def redact(
    cassettes: tuple[str, ...], dry_run: bool, output_format: OutputFormat, settings: Settings
) -> int:
    """Replace the secrets in cassettes.

    Without a name, it redacts all cassettes of the store.

    \b
        tapeway cassette redact --dry-run
        tapeway cassette redact
        tapeway cassette redact smoke sqlite:./cassettes.db#suite/login

    \b
    Exit codes:
        0  no secret is left
        1  some secrets could not be replaced, and are listed as "still there"
        2  a cassette or the store could not be read or written

    Each secret that a scan finds becomes the placeholder that recording would have written.
    Interactions and files without secrets are not touched. A file that is being recorded into is
    refused. In PostgreSQL each interaction is changed separately, and recording can go on meanwhile.
    """
    known = known_values(settings, os.environ)
    action = secrets.plan if dry_run else secrets.redact
    outcomes, code = secrets.for_each(cassettes, settings.store, known, action)
    secrets.print_findings(outcomes.secrets, output_format)
    secrets.print_summary(outcomes, output_format)
    left = any(secret.outcome == secrets.LEFT for secret in outcomes.secrets)
    return code or (terminal.FOUND if left else terminal.DONE)
