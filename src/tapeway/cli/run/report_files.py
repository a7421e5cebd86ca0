"""The files of `--report`, in the form of their suffix."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tapeway.admin.handlers.control import reported_cassette
from tapeway.admin.models.control import Report
from tapeway.cli.run.wrapped_run import FinishedCommand
from tapeway.engine.report import junit_report, markdown_report, text_report
from tapeway.errors import ConfigError

Write = Callable[[FinishedCommand], None]


def report_writer(path: Path) -> Write:
    """A function that writes the report to a file; it may raise OSError.

    Raises ConfigError for a suffix that is no form, or a folder that is not there.
    """
    if (form := _FORMS.get(path.suffix)) is None:
        raise ConfigError(f"--report: {path} does not end in {', '.join(_FORMS)}")
    if not path.parent.is_dir():
        raise ConfigError(f"--report: there is no folder {path.parent}")

    def write(finished: FinishedCommand) -> None:
        path.write_text(form(finished), encoding="utf-8")

    return write


def _json(finished: FinishedCommand) -> str:
    report = Report(
        cassettes=[reported_cassette(each) for each in finished.reports],
        upstream_connections=finished.connections,
        bypassed=[] if finished.isolation is None else list(finished.isolation.bypassed),
    )
    return report.model_dump_json() + "\n"


_FORMS: Mapping[str, Callable[[FinishedCommand], str]] = {
    ".json": _json,
    ".xml": lambda finished: junit_report(finished.reports, finished.isolation),
    ".md": lambda finished: markdown_report(finished.reports, finished.isolation),
    ".txt": lambda finished: text_report(finished.reports, finished.isolation),
}
