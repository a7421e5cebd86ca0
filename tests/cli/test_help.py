"""What `--help` shows: the command behind `--`, common options first, and every option once."""

import re
from collections.abc import Callable, Sequence

import click
import pytest

from tapeway.cli.main import tapeway
from tests.cli.invocation import run_tapeway

SERVING = [["run"], ["serve"]]


@pytest.fixture
def shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Sequence[str]], str]:
    """The help of a command on a terminal of usual width."""
    monkeypatch.setenv("COLUMNS", "80")
    return lambda command: run_tapeway(capsys, *command, "--help")[1]


def test_the_usage_of_run_names_the_command(shown: Callable[[Sequence[str]], str]) -> None:
    assert shown(["run"]).startswith("Usage: tapeway run [OPTIONS] -- COMMAND…\n")


@pytest.mark.parametrize("command", SERVING)
def test_common_options_come_first_in_thirty_lines_and_the_others_by_subject(
    command: list[str], shown: Callable[[Sequence[str]], str]
) -> None:
    sections = re.split(r"^([A-Z][\w ,]+):\n", shown(command), flags=re.MULTILINE)
    titles = sections[1::2]
    [common] = [
        text
        for title, text in zip(titles, sections[2::2], strict=True)
        if title == "Common options"
    ]

    assert titles[titles.index("Common options") :][1:] == [
        *(["Reports"] if command == ["run"] else []),
        *("Listeners", "What is recorded and replayed", "Services"),
        *("Stores, settings and logs", "Other options"),
    ]
    assert len(common.strip().splitlines()) <= 30
    assert "--mode replay|record|auto|passthrough" in common
    assert sections[-1].split() == ["-h,", "--help", "Show", "this", "message", "and", "exit."]


@pytest.mark.parametrize("name", ["run", "serve"])
def test_each_option_is_in_the_help_once(name: str, shown: Callable[[Sequence[str]], str]) -> None:
    command = tapeway.get_command(click.Context(tapeway), name)
    assert command is not None
    flags = [
        parameter.opts[0]
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]

    listed = re.findall(r"^  (--[a-z-]+)", shown([name]), flags=re.MULTILINE)
    assert sorted(listed) == sorted(flags)


@pytest.mark.parametrize("command", [["verify"], ["cassette", "verify"]])
def test_both_names_of_verify_say_that_they_are_one_command(
    command: list[str], shown: Callable[[Sequence[str]], str]
) -> None:
    words = " ".join(shown(command).split())
    assert "tapeway verify and tapeway cassette verify are one command" in words
