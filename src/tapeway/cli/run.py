"""`tapeway run`: a command with a proxy around it, and what it got out of its cassettes."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from tapeway.admin.handlers.control import reported
from tapeway.admin.models.control import Report
from tapeway.cli.around import FREE, Finished, run_around
from tapeway.cli.command_line import Around, command_of
from tapeway.cli.options import settings_options
from tapeway.cli.preparation import prepare
from tapeway.engine.report import junit, markdown, text
from tapeway.errors import ConfigError

_FAILURE = 1
_MISSED = 3
"""The exit code of a command that went well while its recordings did not."""


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
        cassettes=[reported(each) for each in finished.reports],
        upstream_connections=finished.connections,
    )
    return report.model_dump_json() + "\n"


_FORMS: Mapping[str, Callable[[Finished], str]] = {
    ".json": _json,
    ".xml": lambda finished: junit(finished.reports),
    ".md": lambda finished: markdown(finished.reports),
    ".txt": lambda finished: text(finished.reports),
}
