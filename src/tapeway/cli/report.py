"""`tapeway report`: write the report of a running tapeway."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from tapeway.cli.options import admin_option, admin_url, command, prepare
from tapeway.embedded.admin_client import AdminClient, DeckError
from tapeway.engine.report.documents import cassette_report
from tapeway.engine.report.forms import TEXT_FORMS, check_report_file
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


reports_option = click.option(
    "--report",
    "reports",
    metavar="FILE",
    multiple=True,
    help="Write the report: .json, .xml (JUnit), .md, .txt or .html. May be repeated.",
)
"""`--report`; `check_report_files` checks the files."""

HTML = ".html"


@command("admin_token", "config")
@reports_option
@html_max_option
@admin_option
def report(reports: tuple[str, ...], html_max: str, admin: str | None, **flags: object) -> int:
    """Write the report of a running tapeway, in HTML with its journal.

    \b
        tapeway report --report run.html

    The .html is the page of the admin listener with its data in it: open it in a browser, or attach
    it to a build. It holds no secret that a cassette does not hold, and asks no server for anything.

    \b
    Exit codes:
        0  written
        1  no tapeway answers there, or a file cannot be written
        2  an option is invalid
    """
    if not reports:
        raise click.UsageError("say what to write: --report FILE.")
    check_report_files(reports)
    limits = ReportLimits(size_of(html_max))
    settings = prepare(flags)
    client = AdminClient(admin_url(admin), settings.admin_token)
    texts = [_text_of(Path(file).suffix, client, limits) for file in reports]
    for file, text in zip(reports, texts, strict=True):
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as exc:
            raise TapewayError(f"{file} cannot be written: {exc.strerror}") from exc
    return 0


def check_report_files(files: Sequence[str]) -> None:
    """Raise ConfigError for a file of `--report` whose suffix is no form, or without a folder."""
    for file in files:
        check_report_file(Path(file), "--report", (HTML,))


def _text_of(suffix: str, client: AdminClient, limits: ReportLimits) -> str:
    """The report of a running tapeway in the form of the suffix. Raises TapewayError."""
    if suffix == HTML:
        return collected_page(client, limits)
    try:
        text = client.text("GET", "report")
    except DeckError as exc:
        raise TapewayError(str(exc)) from exc
    if suffix == ".json":
        return text + "\n"
    return TEXT_FORMS[suffix](list(map(cassette_report, json.loads(text)["cassettes"])))


def size_of(given: str) -> int:
    """A size given as --html-max. Raises ConfigError."""
    try:
        return size(given)
    except ValueError as exc:
        raise ConfigError(f"--html-max: {exc}") from exc
