"""The printed matrix: what it says of a hole, and that it gathers from several processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.contract.matrix import Result, lines
from tests.support.inner_run import run_tests
from tests.support.thoroughness import step

STORES = ("memory", "file", "sqlite")


def _row(
    promise: str, *outcomes: str, at: int = 0, of: tuple[str, ...] = STORES
) -> Iterator[Result]:
    for store, outcome in zip(of, outcomes, strict=False):
        if outcome:
            yield Result(
                at, promise, store, of, STORES, outcome, "no server" if outcome == "skipped" else ""
            )


def test_a_full_matrix_has_no_hole() -> None:
    found = [*_row("b", *3 * ["passed"], at=1), *_row("a", *3 * ["passed"])]

    assert lines(found) == [
        "   memory  file  sqlite",
        "a    pass  pass    pass",
        "b    pass  pass    pass",
        "",
        "6 of 6 hold, 0 do not, no hole",
    ]


def test_what_was_skipped_or_not_run_is_a_hole_and_says_why() -> None:
    found = [
        *_row("a", "passed", "passed", "skipped"),
        *_row("b", "passed", "", "skipped", at=1),
        *_row("c", "passed", "failed", "passed", at=2),
    ]

    assert lines(found)[1:] == [
        "a    pass  pass    skip",
        "b    pass  ----    skip",
        "c    pass  FAIL    pass",
        "",
        "5 of 9 hold, 1 do not, 3 holes",
        "hole: sqlite: 'a' and 1 more: no server",
        "hole: file: 'b': it was not run",
    ]


def test_what_a_store_does_not_promise_is_no_hole() -> None:
    found = [*_row("a", "passed", "passed", "passed"), *_row("b", "passed", of=("sqlite",), at=1)]

    assert lines(found)[2:] == [
        "b       ·     ·    pass",
        "",
        "4 of 4 hold, 0 do not, no hole",
        "· what only stores promise that several processes use at once",
    ]


def test_of_several_cases_the_worst_counts() -> None:
    found = [
        *_row("a", "passed", "failed", "passed"),
        *_row("a", "skipped", "passed", "passed"),
        *_row("a", "passed", "skipped", "passed"),
    ]

    assert lines(found)[1] == "a    skip  FAIL    pass"


_INNER = """
import pytest

@pytest.mark.parametrize("kind", ["memory", "file"])
def test_it_keeps(kind):
    if kind == SKIPPED:
        pytest.skip("no disk")

def test_other():
    pass
"""
_AS_CONTRACT = """
from pathlib import Path
from tests.stores.contract import matrix

matrix.FOLDER = Path(__file__).parent

def pytest_collection_modifyitems(items):
    matrix.annotate(items, ["memory", "file"])
"""


@pytest.mark.parametrize(
    ("skipped", "arguments", "status"),
    [
        ("file", [".", "-n", "2"], 1),
        ("file", ["."], 1),
        ("none", ["."], 0),
        ("file", ["test_inner.py"], 0),
        ("file", [".", "-k", "keeps"], 0),
        ("file", [".", "--deselect", "test_inner.py::test_other"], 0),
    ][:: step(6)],
)
def test_a_hole_fails_a_run_of_the_whole_contract_and_no_other(
    tmp_path: Path, skipped: str, arguments: list[str], status: int
) -> None:
    folder = tmp_path / "contract"
    folder.mkdir()

    done = run_tests(folder, f"SKIPPED = {skipped!r}\n{_INNER}", *arguments, conftest=_AS_CONTRACT)

    assert done.returncode == status, done.stdout + done.stderr
    assert ("hole: file: 'it keeps': no disk" in done.stdout) == (skipped == "file")
    assert ("a hole fails a run" in done.stdout) == bool(status)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [("-n", "2"), ()][:: step(2)], ids=str)
def test_the_matrix_is_printed_wherever_the_tests_ran(workers: tuple[str, ...]) -> None:
    project = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers]
    suite = "tests/stores/contract/test_cassettes.py"
    done = subprocess.run(
        [*command, suite, "-k", "memory and (loads_as_none or mix)"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )

    said = done.stdout.splitlines()
    (title,) = [line for line in said if "what each store was shown to keep" in line]
    header, first, second, _, summary, *holes = said[said.index(title) + 1 :]
    assert header.split()[:3] == ["memory", "file", "file-yaml"]
    assert first.startswith("a cassette that is not there loads as none ")
    assert first.split()[9:12] == ["pass", "----", "----"]
    assert second.startswith("cassettes do not mix")
    assert summary.startswith("2 of ")
    assert (
        "hole: file: 'a cassette that is not there loads as none' and 1 more: it was not run"
        in holes
    )
