"""`tapeway run`: a command with a proxy around it, and what it got out of its cassettes.

A proxy around one command: it serves on free ports while the command runs, and then reports.
"""

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
from tapeway.cli.command_classes import Around, command_of
from tapeway.cli.env import variables
from tapeway.cli.options import prepare, settings_options
from tapeway.core.model.cassette import StoredCassette
from tapeway.engine.journal import RequestJournal
from tapeway.engine.report import CassetteReport, junit, markdown, text
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

FREE = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
"""The flags of a proxy that nobody has to find by its port."""
_OF_STORE = {each.code for each in (StoreError, CassetteCorrupt, CassetteLocked, CassetteEdited)}
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_FAILURE = 1

_MISSED = 3
"""The exit code of a command that went well while its recordings did not."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a command and of the cassettes it used.

    `code` is the command's own, 128 and the signal's number where it died of one. `failures` says
    what kept answers or cassettes from being kept.
    """

    code: int
    reports: tuple[CassetteReport, ...]
    cassettes: Mapping[str, StoredCassette]
    failures: tuple[str, ...] = ()
    connections: int = 0


def run_around(
    settings: Settings,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdout: IO[str] | None = None,
) -> Finished:
    """Run a command whose SDKs are pointed at the proxy, and eject what it used.

    Its output goes to `stdout` where that is given. Raises ConfigError for a command that cannot
    be started, and what `serve` raises.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_around(settings, command, environ, stdout))


async def _around(
    settings: Settings,
    command: Sequence[str],
    environ: Mapping[str, str],
    stdout: IO[str] | None,
) -> Finished:
    failures: list[str] = []
    try:
        async with serving(settings) as service, asyncio.TaskGroup() as tasks:
            tasks.create_task(_collect(service.journal, failures))
            pointed = {**environ, **variables(resolve_routes(settings), service.url)}
            code = await _run(command, pointed, stdout)
            reports, cassettes = await _eject(service, failures)
            # It ends the collecting too, behind what came last.
            service.journal.close()
    except ExceptionGroup as group:
        # The collecting raises nothing: this is the one that ended it.
        raise group.exceptions[0] from None
    return Finished(code, reports, cassettes, tuple(failures), service.broker.responder.connections)


async def _run(command: Sequence[str], environ: Mapping[str, str], stdout: IO[str] | None) -> int:
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
        process = await _started(command, environ, stdout)
        for number in early:
            pass_on(number)
        code = await process.wait()
    finally:
        for number in _PASSED_ON:
            loop.remove_signal_handler(number)
    return code if code >= 0 else 128 - code


async def _started(
    command: Sequence[str], environ: Mapping[str, str], stdout: IO[str] | None
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*command, env=environ, stdout=stdout)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "its name holds a NUL"
        raise ConfigError(f"{command[0]} cannot be started: {reason}") from exc


def _at_terminal() -> bool:
    """Whether what is typed at the terminal reaches the command from there."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


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


async def _collect(journal: RequestJournal, failures: list[str]) -> None:
    """Note what kept answers from being recorded, each cause once, until the journal closes."""
    with journal.follow() as feed:
        while (entry := await feed.get()) is not None:
            code, _, cause = (entry.message or "").partition(": ")
            if entry.outcome == "error" and code in _OF_STORE and cause not in failures:
                failures.append(cause)


@click.command(cls=Around)
@click.option(
    "--report", metavar="FILE", help="Write the report: .json, .xml (JUnit), .md or .txt."
)
@settings_options(but="workers")
@click.pass_context
def run(context: click.Context, /, *, report: str | None, **flags: object) -> int:
    """Run a command with the proxy around it: tapeway run [OPTIONS] -- COMMAND…

    \b
        tapeway run --mode replay --report tapeway.xml -- pytest -q

    The proxy serves on free ports while the command runs, with the variables that tapeway env
    prints set for it. Then the cassettes are written and the report goes to standard error. Exit
    code: the command's own; if that is 0, 3 where recordings were missed or could not be kept.
    """
    command = command_of(context)
    if command is None:
        raise click.UsageError("give a command behind --.", context)
    written = None if report is None else _form(Path(report))
    given = {name: value for name, value in flags.items() if value is not None}
    finished = run_around(prepare({**FREE, **given}), command, os.environ)
    click.echo(text(finished.reports), err=True, nl=False)
    for failure in finished.failures:
        click.echo(f"not kept: {failure}", err=True)
    if report is not None and written is not None:
        try:
            Path(report).write_text(written(finished), encoding="utf-8")
        except OSError as exc:
            click.echo(f"tapeway: {report} cannot be written: {exc.strerror}", err=True)
            return finished.code or _FAILURE
    missed = any(each.misses for each in finished.reports)
    return finished.code or (_MISSED if missed or finished.failures else 0)


def _form(path: Path) -> Callable[[Finished], str]:
    if (form := _FORMS.get(path.suffix)) is None:
        raise ConfigError(
            f"--report: {path} ends in none of {', '.join(_FORMS)}, so its form is not known"
        )
    if not path.parent.is_dir():
        raise ConfigError(f"--report: there is no folder {path.parent}")
    return form


def _json(finished: Finished) -> str:
    report = Report(
        cassettes=[reported_cassette(each) for each in finished.reports],
        upstream_connections=finished.connections,
    )
    return report.model_dump_json() + "\n"


_FORMS: Mapping[str, Callable[[Finished], str]] = {
    ".json": _json,
    ".xml": lambda finished: junit(finished.reports),
    ".md": lambda finished: markdown(finished.reports),
    ".txt": lambda finished: text(finished.reports),
}
