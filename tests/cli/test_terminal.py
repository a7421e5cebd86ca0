"""A bar and colours for who sits at a terminal, and neither for who reads a log."""

import io
import os
import pty
import subprocess
import sys

import pytest

from tapeway.cli.terminal import progress, progress_of_all, styled
from tests.cli.invocation import run, written
from tests.support import fork_server
from tests.support.exchanges import interaction


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    with progress("copying", 4) as step:
        step(3)
        step(1)

    shown = terminal.getvalue()
    assert "copying" in shown
    assert "3/4" in shown
    assert "4/4" in shown


def test_a_pipe_gets_no_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)

    with progress("copying", 4) as step:
        step(4)

    assert pipe.getvalue() == ""


def test_several_cassettes_have_one_bar_that_names_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    with progress_of_all("checking", ["a", "b\x1b"]) as names:
        for name in names:
            with progress(name, 2) as step:
                step(1)
                step(1)

    shown = terminal.getvalue()
    assert shown.count("\n") == 1
    assert "checking" in shown
    assert "a 1/2" in shown
    assert "b\\u001b 2/2" in shown
    assert "2/2" in shown


@pytest.mark.parametrize(
    "command",
    [("verify",), ("scan",), ("redact",), ("convert", "--all", "cassettes", "sqlite:x.db")],
)
def test_a_command_over_a_whole_store_has_one_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    for name in ("a", "b", "c"):
        written(name, interaction())
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    code, _, _ = run(capsys, *command)

    assert (code, terminal.getvalue().count("\n")) == (0, 1)
    assert "3/3" in terminal.getvalue()


def test_one_cassette_has_its_own_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    with progress_of_all("checking", ["a"]) as names:
        for name in names:
            with progress(name, 2) as step:
                step(2)

    assert "checking" not in terminal.getvalue()
    assert "2/2" in terminal.getvalue()


def test_a_pipe_gets_the_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)

    with progress_of_all("checking", ["a", "b"]) as names:
        assert list(names) == ["a", "b"]

    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("name", "value", "coloured"),
    [
        ("NO_COLOR", "1", False),
        ("NO_COLOR", "", True),
        ("TERM", "dumb", False),
        ("TERM", "xterm", True),
    ],
)
def test_colours_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)

    assert ("\x1b[" in styled("x", "bad")) is coloured


@pytest.mark.parametrize(("no_color", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_the_program_has_colours_on_a_terminal_and_nowhere_else(
    no_color: dict[str, str], coloured: bool
) -> None:
    written("a", interaction())
    environment = {
        **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
        "TERM": "xterm",
        **no_color,
    }
    leader, follower = pty.openpty()
    command = [*fork_server.command(), "cassette", "show", "a"]
    subprocess.run(command, stdout=follower, env=environment, check=True)
    os.close(follower)
    on_terminal = os.read(leader, 65536)
    os.close(leader)

    assert (b"\x1b[32m200\x1b[0m" in on_terminal) is coloured
    assert b"200" in on_terminal
    piped = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b"\x1b" not in piped.stdout
