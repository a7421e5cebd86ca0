"""The command on a miss records what was missed, wherever the miss came from."""

import json
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.process.commands.test_run import app, run
from tests.process.serving import Tapeway
from tests.support.canary import canary


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ThreadedStandIn() as found:
        yield found.url


def ask(deck: Deck, words: str, cassette: str = "talk") -> tuple[str, dict[str, Any]]:
    """Outcome and body of a call."""
    message = {"model": "m", "messages": [{"role": "user", "content": words}]}
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer sk-of-the-app-0123",
        "Tapeway-Cassette": cassette,
    }
    url = f"{deck.url('openai')}/chat/completions"
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310 - our own
            return response.headers["Tapeway-Outcome"], json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.headers["Tapeway-Outcome"], json.load(error)


@pytest.mark.parametrize("has_token", [False, True])
def test_under_serve_the_command_switches_the_mode_of_the_cassette(
    tmp_path: Path, upstream: str, has_token: bool
) -> None:
    route, token = [f"openai={upstream}"], canary() if has_token else None
    with serve(store=str(tmp_path), route=route, mode="replay", admin_token=token) as deck:
        outcome, body = ask(deck, "one")
        assert outcome == "miss"
        command = body["tapeway"]["record_command"]
        assert command in body["message"]
        (entry,) = deck.journal(outcome="miss")
        assert entry["record_command"] == command
        assert token is None or token not in command

        environ = {"PATH": "/usr/bin:/bin"} | ({"TAPEWAY_ADMIN_TOKEN": token} if token else {})
        subprocess.run(["sh", "-c", command], env=environ, check=True, capture_output=True)

        assert ask(deck, "one")[0] == "recorded"
        assert ask(deck, "one", "other")[0] == "miss"


def test_under_run_the_command_is_its_own_line_in_mode_auto(tmp_path: Path, upstream: str) -> None:
    options = (f"--route=openai={upstream}", "--cassette", "a/b")
    assert run(tmp_path, *options, command=app(tmp_path, "one")).returncode == 0
    command = app(tmp_path, "one", "two words")

    missed = run(
        tmp_path, "--mode", "replay", *options, "--report=r.md", "--report=r.xml", command=command
    )

    recording = shlex.join(
        ["tapeway", "run", "--mode", "auto", *options, "--report=r.md", "--report=r.xml"]
    )
    recording += f" -- {shlex.join(command)}"
    assert f"  record with: {recording}\n" in missed.stderr
    for file in ("r.md", "r.xml"):
        assert recording in (tmp_path / file).read_text()
    assert json.dumps(recording)[1:-1] in (tmp_path / ".tapeway/last.html").read_text()
    again = run(tmp_path, *shlex.split(recording)[2 : -len(command) - 1], command=command)
    assert (again.returncode, again.stdout) == (0, "replayed\nrecorded\n")


def test_the_line_of_an_offline_run_may_ask_again(tmp_path: Path) -> None:
    missed = run(tmp_path, "--offline", command=app(tmp_path, "one"))

    assert "record it with tapeway run --mode auto -- " in missed.stderr


def test_a_command_names_no_secret(tmp_path: Path) -> None:
    secret = canary()
    key = f"--store-token={secret}"
    command = app(tmp_path, "one", f"--key={secret}")
    missed = run(tmp_path, "--mode=replay", key, "--report=r.json", command=command)

    assert "record it with tapeway run --mode auto " in missed.stderr
    assert secret not in missed.stderr + (tmp_path / "r.json").read_text()
    assert secret not in (tmp_path / ".tapeway/last.html").read_text()


async def test_under_serve_the_log_names_a_command_of_ones_own(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--mode", "replay", "--record-command", "make record") as tapeway:
        await tapeway.ask("/openai/v1/models")

    (line,) = [line for line in tapeway.stderr.splitlines() if "replay miss" in line]
    assert "; record it with make record; see http://" in line
