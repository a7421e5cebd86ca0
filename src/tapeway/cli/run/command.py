"""`tapeway run`: run a command with a proxy around it, and report the use of cassettes."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from tapeway.admin.handlers.control import reported_cassette
from tapeway.admin.models.control import Report
from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import files_of
from tapeway.cli.command_classes import PrefixCommand, given_options, wrapped_command
from tapeway.cli.options import GROUPS, command, prepare
from tapeway.cli.report import (
    HTML,
    check_report_files,
    html_max_option,
    reports_option,
    size_of,
)
from tapeway.cli.run.isolation import enter_network_namespace
from tapeway.cli.run.wrapped_run import FREE_PORTS, FinishedCommand, WrappedRun, run_wrapped
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.redaction.known_values import Allowed
from tapeway.embedded.last import LAST, last_url, write_last
from tapeway.engine.record_command import without_secrets
from tapeway.engine.report.forms import (
    TEXT_FORMS,
    Locate,
    SourcePlace,
    text_report,
)
from tapeway.engine.report.forms import annotations as build_annotations
from tapeway.engine.report.summary import CassetteReport
from tapeway.engine.request_log import misses
from tapeway.errors import ConfigError
from tapeway.html_report.collection import LAST_LIMITS, ReportLimits
from tapeway.settings.options import Settings, process_secrets
from tapeway.stores.opening import open_store

_FAILURE = 1
_NOT_CLEAN = 3
"""The exit code if the command succeeded, but its run does not count."""


class _RunCommand(PrefixCommand):
    groups: Mapping[str, Sequence[str]] = {
        "Common options": (
            *("mode", "cassette", "store", "route", "upstream"),
            *("reports", "strict", "offline"),
        ),
        "Reports": ("annotations", "html_max", "stale", "prune"),
        **GROUPS,
    }


@command(cls=_RunCommand, defaults=FREE_PORTS)
@reports_option
@html_max_option
@click.option(
    "--strict",
    is_flag=True,
    help="Also exit with 3 when nothing was asked, a cassette does not exist, or a recording was "
    "not used.",
)
@click.option(
    "--stale",
    type=click.Choice(["warn", "fail"]),
    default="warn",
    help="What recordings older than --max-age are: named in the report, or also exit code 3. [warn]",
)
@click.option(
    "--annotations",
    is_flag=True,
    help="Print the report also as annotations of a build (::error file=…) on standard error.",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Let nothing but loopback be reached; sets --mode replay. Exit with 3 if the command asked "
    "for another host.",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Serve what the command sends to services by their own names, over TLS: no base URL is set.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="After a clean run, drop the recordings it did not use, in cassettes of which it replayed "
    "something.",
)
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    reports: tuple[str, ...],
    html_max: str,
    strict: bool,
    stale: str,
    annotations: bool,
    offline: bool,
    tls: bool,
    prune: bool,
    **flags: object,
) -> int:
    """Run a command with the proxy around it: tapeway run [OPTIONS] -- COMMAND…

    \b
        tapeway run --mode replay --report tapeway.xml -- pytest -q

    The proxy serves on free ports while the command runs, with the variables that tapeway env
    prints. Afterwards it writes the cassettes and prints a report on standard error.

    \b
    Exit codes:
        0    the command succeeded
        1    the proxy could not start, or a report could not be written
        2    an option is invalid, or the cassette cannot be read
        3    the command succeeded, but requests were missed, or answers could not be kept, or
             --strict, --stale=fail or --offline objects
        127  the command does not exist

    If the command fails, the code is the command's own.
    """
    wrapped = wrapped_command(context)
    if wrapped is None:
        raise click.UsageError("give a command behind --.", context)
    if offline and flags["mode"] not in (None, "replay"):
        raise click.UsageError("--offline replays: give --mode replay, or none.", context)
    check_report_files(reports)
    asked = any(Path(report).suffix == HTML for report in reports)
    page = ReportLimits(size_of(html_max)) if asked else LAST_LIMITS
    given = {name: value for name, value in flags.items() if value is not None}
    if offline:
        given["mode"] = "replay"
    settings = prepare({**FREE_PORTS, **given})
    if asked and settings.admin_listen is None:
        raise ConfigError(
            "a report that is .html needs the admin API: leave out --admin-listen off"
        )
    if settings.admin_listen is not None and settings.page_url is None:
        settings = replace(settings, page_url=last_url(Path()))
    if settings.record_command is None:
        line = _recording_line(given_options(context), wrapped)
        redaction = RequestRedaction(
            process_secrets(settings, os.environ), Allowed(settings.not_secret)
        )
        settings = replace(settings, record_command=without_secrets(line, redaction))
    namespace = _enters_namespace(settings) if offline else None
    wrapped_run = WrappedRun(
        wrapped, os.environ, prune=prune, namespace=namespace, tls=tls, page=page
    )
    # The report names each miss, so the log does not name it too.
    misses.disabled = True
    try:
        finished = run_wrapped(settings, wrapped_run)
    finally:
        misses.disabled = False
    _print(finished, prune=prune)
    _leave_page(finished)
    for objection in _objections(finished, strict=strict, stale=stale):
        click.echo(objection, err=True)
    if annotations:
        locate = _locate_in(settings.store)
        for line in build_annotations(finished.reports, locate, finished.isolation):
            click.echo(line, err=True)
    # A report that cannot be written does not stop the further reports.
    written = [_write_report(Path(file), finished) for file in reports]
    if not all(written):
        return finished.code or _FAILURE
    done = finished.clean and not any(_objections(finished, strict=strict, stale=stale))
    return finished.code or (terminal.DONE if done else _NOT_CLEAN)


def _recording_line(given: Sequence[str], wrapped: Sequence[str]) -> str:
    """The command line of this run in mode auto, which records what was missed."""
    options: list[str] = []
    before = ""
    for option in given:
        if before != "--mode" and option not in ("--mode", "--offline"):
            options += [] if option.startswith("--mode=") else [option]
        before = option
    return shlex.join(["tapeway", "run", "--mode", "auto", *options, "--", *wrapped])


def _enters_namespace(settings: Settings) -> bool:
    # Inside, only stores on this machine's disks can be reached.
    is_local = not settings.store.lower().startswith(("http:", "https:", "postgres"))
    return is_local and enter_network_namespace()


def _print(finished: FinishedCommand, *, prune: bool) -> None:
    for line in text_report(finished.reports, finished.isolation).splitlines():
        is_fault = line.startswith(("  missed: ", "  failed: ", "  bypassed: "))
        click.echo(terminal.styled(line, "bad") if is_fault else line, err=True)
    for failure in finished.failures:
        click.echo(f"not kept: {failure}", err=True)
    for name, count in (finished.pruned or {}).items():
        click.echo(f"{name}: {terminal.counted(count, 'recording')} pruned", err=True)
    if prune and not finished.clean:
        click.echo("nothing was pruned, since the run was not clean", err=True)
    if finished.clean and any(report.failures for report in finished.reports):
        click.echo(f"warning: {_failures_text(finished.reports)}", err=True)


def _failures_text(reports: Sequence[CassetteReport]) -> str:
    """What the exit code of a command does not say, if the command ignored that calls failed."""
    failed = sum(report.failures for report in reports)
    asked = sum(report.requests for report in reports)
    if failed == asked:
        return (
            "the command succeeded, although every call failed and left no recording "
            "(--strict exits with 3)"
        )
    return f"the command succeeded, although {failed} of {asked} calls failed and left no recording"


def _leave_page(finished: FinishedCommand) -> None:
    """Leave the page of a run that asked for something; a folder that takes no file is no failure."""
    if finished.page is None or not any(report.requests for report in finished.reports):
        return
    try:
        write_last(Path(), finished.page)
    except OSError as exc:
        terminal.print_error(f"warning: {LAST} cannot be written: {exc.strerror}")
        return
    if any(report.missed or report.failures for report in finished.reports) or finished.failures:
        click.echo(f"look at it in a browser: {LAST}", err=True)


def _write_report(path: Path, finished: FinishedCommand) -> bool:
    """Write the report in the form of the file's suffix; False, with an error, where that fails."""
    if path.suffix == ".json":
        text = _report_document(finished)
    elif path.suffix == HTML:
        if finished.page is None:
            terminal.print_error(f"{path} could not be made: {finished.page_fault}")
            return False
        text = finished.page
    else:
        text = TEXT_FORMS[path.suffix](finished.reports, finished.isolation)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        terminal.print_error(f"{path} cannot be written: {exc.strerror}")
        return False
    return True


def _report_document(finished: FinishedCommand) -> str:
    isolation = finished.isolation
    report = Report(
        cassettes=[reported_cassette(ejected) for ejected in finished.reports],
        upstream_connections=finished.connections,
        bypassed=[] if isolation is None else list(isolation.bypassed),
        offline=None if isolation is None else isolation.kind,
    )
    return report.model_dump_json() + "\n"


def _objections(finished: FinishedCommand, *, strict: bool, stale: str) -> Iterator[str]:
    """What only --strict and --stale=fail object to."""
    for report in finished.reports:
        if stale == "fail" and report.stale:
            yield f"stale: {terminal.counted(len(report.stale), 'recording')} of {report.name}"
    if not strict:
        return
    if not any(report.requests for report in finished.reports):
        yield "strict: nothing was asked"
    elif all(report.requests == report.failures for report in finished.reports):
        yield "strict: every call failed"
    for name in finished.absent:
        yield f"strict: cassette '{name}' does not exist"
    for report in finished.reports:
        if report.unused and report.name not in (finished.pruned or {}):
            unused = terminal.counted(len(report.unused), "recording")
            yield f"strict: {unused} of {report.name} not used"


def _locate_in(store: str) -> Locate:
    """The files of cassettes, by their paths in the repository; None in a store without files."""
    if (folder := open_store(store).facts.folder) is None:
        return lambda name: None
    start = os.environ.get("GITHUB_WORKSPACE", ".")

    def locate(name: str) -> SourcePlace | None:
        files = files_of(folder, name)
        return SourcePlace(Path(os.path.relpath(files[0], start)).as_posix()) if files else None

    return locate
