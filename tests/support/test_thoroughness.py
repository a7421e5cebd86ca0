"""What a run draws: by default the same cases whatever ran before, under `--all` others."""

from pathlib import Path

import pytest

from tests.support.inner_run import run_tests

DRAWING = """
from hypothesis import given, strategies as st
from tests.support.canary import canary
from tests.support.thoroughness import combinations, examples, step

def test_number():
    print("canary", canary(), [*range(9)[:: step(3)]], examples(20), combinations("ab", "xyz"))

@given(st.text(), st.integers(), st.sets(st.text()).map(sorted))
def test_examples(text, number, several):
    print(ascii((text, number, several)))
"""
SIMPLER = DRAWING.replace(
    "st.text(), st.integers(), st.sets(st.text())", "st.none(), st.integers(), st.just('a')"
)

SLOW = """
import pytest

def test_brief():
    pass

@pytest.mark.slow
def test_long():
    pass
"""


def drawn(
    folder: Path, hash_seed: str, *options: str, imports: str = "", drawing: str = DRAWING
) -> list[str]:
    """What the tests of a file draw in a process of its own."""
    arguments = ("-q", "-s", *options, ".")
    done = run_tests(
        folder, f"{imports}\n{drawing}", *arguments, environ={"PYTHONHASHSEED": hash_seed}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("(", ".(", "canary"))]


def test_the_same_is_drawn_in_every_run_whatever_was_imported_before(tmp_path: Path) -> None:
    before = drawn(tmp_path, "1")
    after = drawn(tmp_path, "2", imports="import tapeway.cli.main, tests.core.keys")

    assert len(before) > 20
    assert "[0, 3, 6] 20 [('a', 'x'), ('b', 'y'), ('a', 'z')]" in before[0]
    assert before == after


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ((), "1 passed, 1 deselected"),
        (("--all",), "2 passed"),
        (("test_inner.py",), "2 passed"),
        (("-k", "long"), "1 passed, 1 deselected"),
    ],
    ids=str,
)
def test_slow_tests_are_left_to_all_and_to_runs_that_name_tests(
    tmp_path: Path, arguments: tuple[str, ...], summary: str
) -> None:
    whole = ("-q", f"--rootdir={tmp_path}", "--override-ini=testpaths=.")
    done = run_tests(tmp_path, SLOW, *whole, *arguments)

    assert done.stdout.splitlines()[-1].startswith(f"{summary} in "), done.stdout + done.stderr


@pytest.mark.slow
def test_under_all_other_and_more_cases_are_drawn(tmp_path: Path) -> None:
    one, other = (drawn(tmp_path, "1", "--all", drawing=SIMPLER) for _ in range(2))

    assert len(one) > 1000
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8] 200" in one[0]
    assert "[('a', 'x'), ('a', 'y'), ('a', 'z'), ('b', 'x')," in one[0]
    assert one[0] != other[0]
    assert one[1:] != other[1:]
