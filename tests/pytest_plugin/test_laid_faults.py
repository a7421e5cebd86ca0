"""Faults that a marker lays over what its test replays."""

from pathlib import Path

from tapeway.testing import ThreadedStandIn
from tests.pytest_plugin.inner import run, write

TESTS = """
BUSY = {"name": "busy", "do": "503"}

@pytest.mark.tapeway(faults=[BUSY])
@pytest.mark.parametrize("n", [1, 2])
def test_busy(cassette, n):
    assert ask("one") != "error"
    assert ask("one") != "error"
    if cassette.mode == "replay":
        assert [call["faulted"] for call in cassette.calls] == ["busy", None]
        assert [call["status"] for call in cassette.calls] == [503, 200]

def test_other(cassette):
    assert ask("one") != "error"
    assert [call["faulted"] for call in cassette.calls] == [None]
"""


def test_each_test_gets_its_own_faults_in_replay_alone(tmp_path: Path) -> None:
    write(tmp_path, TESTS)
    with ThreadedStandIn() as upstream:
        recorded = run(tmp_path, "--tapeway=record", upstream=upstream.url)
    replayed = run(tmp_path, "--tapeway=replay")

    assert recorded.returncode == 0, recorded.stdout
    assert replayed.returncode == 0, replayed.stdout
    assert "2 answers with a fault: 2 asked for again" in replayed.stdout


def test_what_is_no_fault_stops_the_run(tmp_path: Path) -> None:
    write(tmp_path, "@pytest.mark.tapeway(faults=[{'name': 'a', 'do': 'x'}])\ndef test_a(): ...\n")

    done = run(tmp_path, "--tapeway=auto")

    assert done.returncode == 4
    assert "test_it.py::test_a: faults[0] ('a').do: must be one of 429, 500" in done.stderr
