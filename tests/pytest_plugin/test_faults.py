"""What goes wrong around a test is said of that test, and stops no other."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.pytest_plugin.inner import cassettes, run, write

TESTS = """
@pytest.mark.tapeway(rules={"ignor": []})
def test_marked():
    pass

def test_unreadable():
    ask("one")

def test_fails():
    ask("two")
    assert 0

def test_good():
    assert ask("three") == "recorded"
"""
NO_RULE = "test_it.py::test_marked: rules.ignor: there is no such rule; did you mean 'ignore'?"


@pytest.mark.slow
def test_what_is_wrong_with_one_test_stops_no_other(tmp_path: Path) -> None:
    write(tmp_path, TESTS)
    unreadable = tmp_path / "cassettes/test_it/test_unreadable.json"
    unreadable.parent.mkdir(parents=True)
    unreadable.write_text('{"version": "1", "intera')
    # Where the failed test's recording should go, and a report.
    (tmp_path / ".tapeway").touch()
    (tmp_path / "r.txt").mkdir()

    with ThreadedStandIn() as upstream:
        options = ("-n2", "--tapeway=record", "--tapeway-report=r.txt", "--tapeway-report=r.md")
        done = run(tmp_path, *options, upstream=upstream.url)
    alone = run(tmp_path)

    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed, 2 errors" in done.stdout
    assert NO_RULE in done.stdout
    assert "test_unreadable.json line 1: " in done.stdout
    assert "not kept: what test_it.py::test_fails recorded: " in done.stdout
    assert "not written: r.txt: Is a directory" in done.stdout
    assert "| test_it/test_good |" in (tmp_path / "r.md").read_text()
    assert cassettes(tmp_path)["test_it/test_unreadable"] == b'{"version": "1", "intera'
    # One process can say it before any test.
    assert (alone.returncode, alone.stderr.strip()) == (4, f"ERROR: {NO_RULE}")


def test_a_file_of_vcr_is_named_with_the_command_that_brings_it_over(tmp_path: Path) -> None:
    write(tmp_path, 'def test_old():\n    assert ask("one") == "replayed"\n')
    old = tmp_path / "cassettes/test_it/test_old.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("interactions:\n- request:\n    uri: http://h/\nversion: 1\n")

    done = run(tmp_path, "--tapeway=replay")

    assert done.returncode == 1
    assert "cannot be read: " in done.stdout
    assert "test_old.yaml holds recordings of VCR.py: to bring them over, run " in done.stdout
    assert "repair it" not in done.stdout


def test_calls_that_the_upstream_failed_are_counted_in_the_summary(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
def test_down():
    try:
        ask("one")
    except OSError:
        pass
""",
    )
    with closing(socket.socket()) as unused:
        # A port that is bound and not listened to refuses every connection.
        unused.bind(("127.0.0.1", 0))
        upstream = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = run(tmp_path, "--tapeway=record", upstream=upstream)

    assert "\n1 failed\n" in done.stdout
    assert "failed: upstream_unreachable (cassette test_it/test_down)" in done.stdout
    assert "no requests" not in done.stdout
