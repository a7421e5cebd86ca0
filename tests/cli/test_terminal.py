"""A bar for who waits at a terminal, and nothing for who reads a log."""

import io
import sys

import pytest

from tapeway.cli.terminal import progress


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
