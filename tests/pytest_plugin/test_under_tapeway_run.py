"""`tapeway run -- pytest`: one cassette for the whole run, or one for each test, as it was recorded."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.pytest_plugin.inner import ARGUMENTS, ENVIRON, cassettes, run, write
from tests.support import fork_server

TESTS = """
def test_one():
    assert ask("one") != "miss"

def test_two():
    assert ask("two") != "miss"
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ThreadedStandIn() as found:
        yield found.url


def wrapped(folder: Path, *options: str, more: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Exit code and report of pytest within `tapeway run`: the names of the cassettes."""
    # Nothing confines what a fork server starts.
    python = (sys.executable,) if "--offline" in options else fork_server.command()
    inner = (*python, *ARGUMENTS, *more)
    done = subprocess.run(
        [*fork_server.command(), "run", "--report=r.json", *options, "--", *inner],
        capture_output=True,
        text=True,
        cwd=folder,
        env=ENVIRON,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    report = json.loads((folder / "r.json").read_bytes())
    return done.returncode, sorted(cassette["name"] for cassette in report["cassettes"])


def test_a_run_goes_on_with_the_one_cassette_that_it_recorded(
    tmp_path: Path, upstream: str
) -> None:
    write(tmp_path, TESTS)
    first = wrapped(tmp_path, "--mode=auto", f"--route=openai={upstream}")
    second = wrapped(tmp_path, "--mode=replay", "--strict", "--offline")

    assert first == second == (0, ["default"])
    assert list(cassettes(tmp_path)) == ["default"]


@pytest.mark.slow
def test_a_run_goes_on_with_the_cassettes_of_single_tests_and_reports_them(
    tmp_path: Path, upstream: str
) -> None:
    write(tmp_path, TESTS)
    recorded = run(
        tmp_path, "--tapeway=record", upstream=upstream, TAPEWAY_STORE="sqlite:cassettes.db"
    )
    assert recorded.returncode == 0, recorded.stdout
    assert run(tmp_path, "--tapeway=record", upstream=upstream).returncode == 0
    own = ["test_it/test_one", "test_it/test_two"]

    assert wrapped(tmp_path, "--mode=replay", "--strict", "--offline") == (0, own)
    assert wrapped(tmp_path, "--mode=replay", more=("-n2",)) == (0, own)
    assert wrapped(tmp_path, "--mode=replay", "--store=sqlite:cassettes.db") == (0, own)
    # A recording that no test uses is an objection here too.
    write(tmp_path, TESTS.replace('ask("two")', '"two"'))
    assert wrapped(tmp_path, "--mode=replay", "--strict") == (0, own[:1])
    file = tmp_path / "cassettes/test_it/test_one.json"
    document = json.loads(file.read_bytes())
    other = json.loads(json.dumps(document["interactions"][0]).replace('"one"', '"three"'))
    document["interactions"].append({**other, "index": 1})
    file.write_text(json.dumps(document))
    assert wrapped(tmp_path, "--mode=replay", "--strict") == (3, own[:1])


@pytest.mark.slow
def test_an_option_of_the_plugin_gives_each_test_a_cassette(tmp_path: Path, upstream: str) -> None:
    write(tmp_path, TESTS)
    options = ("--mode=auto", f"--route=openai={upstream}")
    _, names = wrapped(tmp_path, *options, more=("--tapeway=auto",))

    assert names == list(cassettes(tmp_path)) == ["test_it/test_one", "test_it/test_two"]


def test_a_miss_names_the_line_of_the_run_around_it(tmp_path: Path) -> None:
    write(tmp_path, "def test_one():\n    ask('one')\n")
    arguments = ("--mode", "replay", "--", *fork_server.command(), *ARGUMENTS, "--tapeway=replay")
    done = subprocess.run(
        [*fork_server.command(), "run", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRON,
        check=False,
    )

    assert "record it with tapeway run --mode auto -- " in done.stdout, done.stdout + done.stderr
    assert "pytest --tapeway=auto" not in done.stdout
