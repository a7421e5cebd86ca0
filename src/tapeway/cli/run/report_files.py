"""The files of `--report`, in the form of their suffix."""

from collections.abc import Callable
from pathlib import Path

from tapeway.admin.handlers.control import reported_cassette
from tapeway.admin.models.control import Report
from tapeway.cli.run.wrapped_run import FinishedCommand
from tapeway.engine.report import TEXT_FORMS, check_report_file

Write = Callable[[FinishedCommand], None]


def report_writer(path: Path) -> Write:
    """A function that writes the report to a file; it may raise OSError.

    Raises ConfigError for a suffix that is no form, or a folder that is not there.
    """
    check_report_file(path, "--report")

    def write(finished: FinishedCommand) -> None:
        if path.suffix == ".json":
            text = _json(finished)
        else:
            text = TEXT_FORMS[path.suffix](finished.reports, finished.isolation)
        path.write_text(text, encoding="utf-8")

    return write


def _json(finished: FinishedCommand) -> str:
    report = Report(
        cassettes=[reported_cassette(each) for each in finished.reports],
        upstream_connections=finished.connections,
        bypassed=[] if finished.isolation is None else list(finished.isolation.bypassed),
    )
    return report.model_dump_json() + "\n"
