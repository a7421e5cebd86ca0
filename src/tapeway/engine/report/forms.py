"""The forms of a report by the suffix of its file."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tapeway.engine.report.junit import junit_report
from tapeway.engine.report.markdown import markdown_report
from tapeway.engine.report.text import text_report
from tapeway.errors import ConfigError

TEXT_FORMS: Mapping[str, Callable[..., str]] = {
    ".xml": junit_report,
    ".md": markdown_report,
    ".txt": text_report,
}
"""The forms of a report that people and build servers read, by the suffix of its file."""


def check_report_file(path: Path, option: str, more: tuple[str, ...] = ()) -> None:
    """Raises ConfigError for a suffix that is no form, or a folder that is not there.

    `more` are the suffixes of further forms that the caller writes.
    """
    suffixes = (".json", *TEXT_FORMS, *more)
    if path.suffix not in suffixes:
        raise ConfigError(f"{option}: {path} does not end in {', '.join(suffixes)}")
    if not path.parent.is_dir():
        raise ConfigError(f"{option}: there is no folder {path.parent}")
