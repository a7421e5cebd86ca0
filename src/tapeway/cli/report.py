"""`tapeway report`: write the requests of a running tapeway to one HTML file."""

from pathlib import Path

import click

from tapeway.cli.options import admin_option, admin_url, command, prepare
from tapeway.embedded.admin_client import AdminClient
from tapeway.errors import ConfigError, TapewayError
from tapeway.html_report.collection import ReportLimits
from tapeway.html_report.page import collected_page
from tapeway.settings.parsers import size

_HTML_MAX = "20MiB"
html_max_option = click.option(
    "--html-max",
    metavar="SIZE",
    default=_HTML_MAX,
    help=f"The most bytes of recorded data in a report that is .html; misses come first. [{_HTML_MAX}]",
)
"""`--html-max`; `size_of` reads it."""


@command("admin_token", "config")
@click.option(
    "--html", metavar="FILE", required=True, help="Write the journal and the report to this file."
)
@html_max_option
@admin_option
def report(html: str, html_max: str, admin: str | None, **flags: object) -> int:
    """Write the journal of a running tapeway to an HTML file, and its report.

    \b
        tapeway report --html run.html

    The file is the page of the admin listener with its data in it: open it in a browser, or attach
    it to a build. It holds no secret that a cassette does not hold, and asks no server for anything.

    \b
    Exit codes:
        0  written
        1  no tapeway answers there, or the file cannot be written
        2  an option is invalid
    """
    settings = prepare(flags)
    token = settings.admin_token
    text = collected_page(AdminClient(admin_url(admin), token), ReportLimits(size_of(html_max)))
    try:
        Path(html).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise TapewayError(f"{html} cannot be written: {exc.strerror}") from exc
    return 0


def size_of(given: str) -> int:
    """A size given as --html-max. Raises ConfigError."""
    try:
        return size(given)
    except ValueError as exc:
        raise ConfigError(f"--html-max: {exc}") from exc
