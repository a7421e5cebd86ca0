"""`tapeway cassette scan`: find secrets in cassettes."""

import os

import click

from tapeway.cli import secrets, terminal
from tapeway.cli.cassette_arguments import is_target_in_store
from tapeway.cli.options import OutputFormat, cassette_command
from tapeway.cli.secret_history import scan_history
from tapeway.settings.options import Settings, known_values


@cassette_command(in_store=is_target_in_store)
@click.argument("cassettes", metavar="[NAME|FILE|FOLDER|STORE#NAME]...", nargs=-1)
@click.option("--strict", is_flag=True, help="Refuse files that are no cassettes.")
@click.option(
    "--history",
    is_flag=True,
    help="Scan every version that git has, also of cassettes that were removed.",
)
def scan(
    cassettes: tuple[str, ...],
    strict: bool,
    history: bool,
    output_format: OutputFormat,
    settings: Settings,
) -> int:
    """Find secrets in cassettes.

    Without a name, it scans all cassettes of the store.

    \b
        tapeway cassette scan
        tapeway cassette scan smoke cassettes/suite/login.json
        tapeway cassette scan --history

    \b
    Exit codes:
        0  none found
        1  some found
        2  something could not be read

    A secret is the value of a credential variable in the environment, a known pattern of a key or
    token, or a value under the name of a credential, in headers, URLs and bodies, also if it is
    encoded. The last line says how much was searched.
    """
    known = known_values(settings, os.environ)
    if history:
        findings, code = scan_history(cassettes, settings, known), terminal.DONE
    else:
        findings, code = secrets.for_each(
            cassettes, settings.store, known, secrets.scan, strict=strict
        )
    secrets.print_findings(findings.secrets, output_format)
    secrets.print_summary(findings, output_format)
    return code or (terminal.FOUND if findings.secrets else terminal.DONE)
