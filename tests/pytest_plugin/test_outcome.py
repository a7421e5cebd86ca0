"""Which runs are whole ones: only those say what no test uses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tapeway.pytest_plugin.outcome import RunOutcome
from tapeway.pytest_plugin.record_command import RecordCommand

ROOT = Path("/project")
SOURCE = pytest.Config.ArgsSource


def outcome(
    *arguments: str, folder: Path = ROOT, source: object = SOURCE.INVOCATION_DIR, **options: object
) -> RunOutcome:
    option = SimpleNamespace(**{"keyword": "", "markexpr": "", "lf": False, **options})
    given = SimpleNamespace(dir=folder, args=arguments)
    config = SimpleNamespace(
        option=option, args_source=source, invocation_params=given, rootpath=ROOT
    )
    connection = SimpleNamespace(deck=None, starts_server=False)
    command = RecordCommand(cast("Any", config), None)
    return RunOutcome(cast("Any", config), cast("Any", connection), command)


@pytest.mark.parametrize(
    "whole",
    [outcome(), outcome("-x"), outcome(folder=ROOT / "tests", source=SOURCE.TESTPATHS)],
)
def test_a_run_of_all_that_is_configured_is_whole(whole: RunOutcome) -> None:
    assert whole.why_partial() is None


@pytest.mark.parametrize(
    "options", [{"keyword": "one"}, {"markexpr": "not slow"}, {"lf": True}], ids=str
)
def test_a_selection_is_no_whole_run(options: dict[str, object]) -> None:
    assert outcome(**options).why_partial() == "some tests were deselected"  # type: ignore[arg-type]


def test_what_other_plugins_deselect_is_missing_too() -> None:
    deselected = outcome()
    deselected.partial = True
    assert deselected.why_partial() == "some tests were deselected"


@pytest.mark.parametrize(
    "some",
    [
        outcome(source=SOURCE.ARGS),
        outcome(folder=ROOT / "tests"),
        outcome("--ignore=tests/slow"),
        outcome("--ignore-glob", "*/slow"),
    ],
)
def test_some_paths_are_no_whole_run(some: RunOutcome) -> None:
    assert some.why_partial() == "only some paths were collected"
