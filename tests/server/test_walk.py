"""The functions that a request runs are listed in `walks/`, so that a review shows a change."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.server.walk import FOLDER

ROOT = Path(__file__).parents[2]


@cache
def walks() -> dict[str, str]:
    """The walks of this moment, recorded in a process of their own."""
    command = [sys.executable, "-m", "tests.server.walk", "--print"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ["replay", "first_replay", "recording"])
def test_a_request_runs_the_functions_on_its_list(name: str) -> None:
    written = (FOLDER / f"{name}.txt").read_text()

    assert walks()[name] == written, "look at the difference, then: python -m tests.server.walk"


def test_a_second_replay_runs_few_functions_in_few_files() -> None:
    functions, files = walks()["replay"].splitlines()[0].split(" functions in ")

    assert int(functions) <= 35
    assert int(files.removesuffix(" files")) <= 10


def test_a_recording_runs_no_more_functions_and_files_than_it_did() -> None:
    functions, files = walks()["recording"].splitlines()[0].split(" functions in ")

    assert int(functions) <= 300
    assert int(files.removesuffix(" files")) <= 69
