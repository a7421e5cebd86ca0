"""`tapeway run`: run a command with a proxy around it, and report how it used its cassettes."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click
import uvloop

from tapeway.admin.handlers.control import reported_cassette
from tapeway.admin.models.control import Report
from tapeway.cli import terminal
from tapeway.cli.command_classes import WrappingCommand, wrapped_command
from tapeway.cli.env import variables
from tapeway.cli.options import command, prepare
from tapeway.core.model.cassette import StoredCassette
from tapeway.engine.journal import RequestJournal
from tapeway.engine.report import CassetteReport, junit_report, markdown_report, text_report
from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteLocked,
    ConfigError,
    StoreError,
    TapewayError,
)
from tapeway.server.lifecycle import Service, serving
from tapeway.settings.options import Settings, resolve_routes
from tapeway.settings.sources import variable_of

FREE_PORTS = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
"""Flags of a proxy whose ports the system chooses."""

_STORE_ERRORS = {
    each.code for each in (StoreError, CassetteCorrupt, CassetteLocked, CassetteEdited)
}
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_FAILURE = 1

_TOKENS = frozenset(map(variable_of, ("admin_token", "store_token")))
"""The variables that the command does not get: with them it could read and change every cassette."""

_MISSED = 3
"""The exit code if the command succeeded, but requests were missed or responses not stored."""


@command(but="workers", cls=WrappingCommand)
@click.option(
    "--report", metavar="FILE", help="Write the report: .json, .xml (JUnit), .md or .txt."
)
@click.pass_context
def run(context: click.Context, /, *, report: str | None, **flags: object) -> int:
    """Run a command with the proxy around it: tapeway run [OPTIONS] -- COMMAND…

    \b
        tapeway run --mode replay --report tapeway.xml -- pytest -q

    The proxy serves on free ports while the command runs, with the variables that tapeway env
    prints. Afterwards it writes the cassettes and prints a report on standard error.

    \b
    Exit codes:
        3  the command succeeded, but recordings were missed or could not be kept
        otherwise that of the command
    """
    wrapped = wrapped_command(context)
    if wrapped is None:
        raise click.UsageError("give a command behind --.", context)
    format_report = None if report is None else _report_format(Path(report))
    given = {name: value for name, value in flags.items() if value is not None}
    finished = run_wrapped(prepare({**FREE_PORTS, **given}), wrapped, os.environ)
    click.echo(text_report(finished.reports), err=True, nl=False)
    for failure in finished.failures:
        click.echo(f"not kept: {failure}", err=True)
    if report is not None and format_report is not None:
        try:
            Path(report).write_text(format_report(finished), encoding="utf-8")
        except OSError as exc:
            terminal.print_error(f"{report} cannot be written: {exc.strerror}")
            return finished.code or _FAILURE
    missed = any(each.misses for each in finished.reports)
    return finished.code or (_MISSED if missed or finished.failures else terminal.DONE)


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """How a command ended, and the cassettes it used.

    `code` is its exit code, or 128 and the number of the signal that ended it. `failures` are the
    reasons why answers or cassettes could not be stored.
    """

    code: int
    reports: tuple[CassetteReport, ...]
    cassettes: Mapping[str, StoredCassette]
    failures: tuple[str, ...] = ()
    connections: int = 0


def run_wrapped(
    settings: Settings,
    wrapped: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdout: IO[str] | None = None,
) -> FinishedCommand:
    """Run a command whose SDKs are pointed at a proxy, and eject the cassettes it used.

    Its output goes to `stdout` if that is given. Raises ConfigError for a command that cannot be
    started, and what `serve` raises.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_with_proxy(settings, wrapped, environ, stdout))


async def _run_with_proxy(
    settings: Settings,
    wrapped: Sequence[str],
    environ: Mapping[str, str],
    stdout: IO[str] | None,
) -> FinishedCommand:
    failures: list[str] = []
    try:
        async with serving(settings) as service, asyncio.TaskGroup() as tasks:
            tasks.create_task(_collect_store_errors(service.journal, failures))
            kept = {name: value for name, value in environ.items() if name not in _TOKENS}
            pointed = {**kept, **variables(resolve_routes(settings), service.url)}
            code = await _run_process(wrapped, pointed, stdout)
            reports, cassettes = await _eject(service, failures)
            # This also ends the task above, after the last entry.
            service.journal.close()
    except ExceptionGroup as group:
        # The task raises nothing, so this is the error that ended it.
        raise group.exceptions[0] from None
    connections = service.broker.recorder.responder.connections
    return FinishedCommand(code, reports, cassettes, tuple(failures), connections)


async def _run_process(
    wrapped: Sequence[str], environ: Mapping[str, str], stdout: IO[str] | None
) -> int:
    loop = asyncio.get_running_loop()
    process: asyncio.subprocess.Process | None = None
    early: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        if process is None:
            early.append(number)
        elif process.returncode is None and not (number == signal.SIGINT and _at_terminal()):
            process.send_signal(number)

    for number in _PASSED_ON:
        loop.add_signal_handler(number, pass_on, number)
    try:
        process = await _start(wrapped, environ, stdout)
        for number in early:
            pass_on(number)
        code = await process.wait()
    finally:
        for number in _PASSED_ON:
            loop.remove_signal_handler(number)
    return code if code >= 0 else 128 - code


async def _start(
    wrapped: Sequence[str], environ: Mapping[str, str], stdout: IO[str] | None
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*wrapped, env=environ, stdout=stdout)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "its name holds a NUL"
        raise ConfigError(f"{wrapped[0]} cannot be started: {reason}") from exc


def _at_terminal() -> bool:
    """Whether the terminal itself sends Ctrl-C to the command, which is in the same process group."""
    try:
        tty = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(tty) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(tty)


async def _eject(
    service: Service, failures: list[str]
) -> tuple[tuple[CassetteReport, ...], Mapping[str, StoredCassette]]:
    broker = service.broker
    reports: list[CassetteReport] = []
    cassettes: dict[str, StoredCassette] = {}
    for cassette in await broker.loaded():
        try:
            reports.append(await broker.eject(cassette.name))
            if (stored := await broker.read(cassette.name)) is not None:
                cassettes[cassette.name] = stored
        except TapewayError as exc:
            failures.append(exc.message)
    return tuple(reports), cassettes


async def _collect_store_errors(journal: RequestJournal, failures: list[str]) -> None:
    """Add why answers could not be recorded, each cause once, until the journal closes."""
    with journal.follow() as entries:
        while (entry := await entries.get()) is not None:
            code, _, cause = (entry.message or "").partition(": ")
            if entry.outcome == "error" and code in _STORE_ERRORS and cause not in failures:
                failures.append(cause)


_ReportFormat = Callable[[FinishedCommand], str]


def _report_format(path: Path) -> _ReportFormat:
    if (found := _REPORT_FORMATS.get(path.suffix)) is None:
        raise ConfigError(f"--report: {path} does not end in {', '.join(_REPORT_FORMATS)}")
    if not path.parent.is_dir():
        raise ConfigError(f"--report: there is no folder {path.parent}")
    return found


def _json(finished: FinishedCommand) -> str:
    report = Report(
        cassettes=[reported_cassette(each) for each in finished.reports],
        upstream_connections=finished.connections,
    )
    return report.model_dump_json() + "\n"


_REPORT_FORMATS: Mapping[str, _ReportFormat] = {
    ".json": _json,
    ".xml": lambda finished: junit_report(finished.reports),
    ".md": lambda finished: markdown_report(finished.reports),
    ".txt": lambda finished: text_report(finished.reports),
}
