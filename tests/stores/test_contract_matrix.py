"""A promise that was not shown for a store fails a run of the whole contract."""

from pathlib import Path

import pytest

from tests.support.inner_run import run_tests
from tests.support.thoroughness import step

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
        ("file", ["."], 1),
        ("file", [".", "-n", "2"], 1),
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
