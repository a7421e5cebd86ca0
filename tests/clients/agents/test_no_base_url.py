"""Claude Code and Codex call their services by their own names, within `tapeway run --tls`.

Each is the real package, recorded in one home, folder and time zone, and replayed in others with
`--offline`. `make agents` installs them; the tests are skipped otherwise.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.agents.test_elsewhere import (
    CLAUDE,
    CLAUDE_ASKS,
    CODEX,
    CODEX_ASKS,
    HERE,
    THERE,
    git_repository,
    need,
)
from tests.support.canary import sightings
from tests.support.company import KEYS, Finished, Network, company

pytestmark = pytest.mark.slow

CODEX_HOSTS = ("chatgpt.com", "ab.chatgpt.com", "github.com", "api.github.com")
QUIET = (
    "-c features.plugins=false -c features.api_key_model_discovery=false -c analytics.enabled=false"
)


def codex(options: str, prompt: str = CODEX_ASKS) -> list[str]:
    """Codex as it is installed, with a login by key."""
    script = (
        'printenv OPENAI_API_KEY | "$0" login --with-api-key && '
        f'exec "$0" exec {options} --skip-git-repo-check -s danger-full-access "$1"'
    )
    return ["sh", "-c", script, need(CODEX), prompt]


def claude(prompt: str = CLAUDE_ASKS) -> list[str]:
    return [need(CLAUDE), "-p", prompt, "--tools", "Bash", "--allowedTools", "Bash(echo:*)"]


@dataclass(frozen=True, slots=True)
class Place:
    """A home, a folder and a time zone."""

    root: Path
    zone: str

    async def run(
        self, network: Network, command: list[str], *options: str, offline: bool = False
    ) -> Finished:
        """Run a command here."""
        home, folder = self.root / "home", self.root / "project"
        home.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        surroundings = {"HOME": str(home), "TZ": self.zone, "DISABLE_AUTOUPDATER": "1"}
        arguments = (*options, "--log-format=json", "--", *command)
        return await network.run(*arguments, offline=offline, environ=surroundings, cwd=folder)


async def recorded(folder: Path, command: list[str], *options: str) -> Finished:
    """A run of a command in the company's network."""
    async with company(folder, *CODEX_HOSTS) as network:
        finished = await Place(folder / "here", HERE).run(network, command, *options)
        assert finished.code == 0, finished.err
        cassette = (folder / "cassettes" / "default.json").read_bytes()
        places = {"the cassette": cassette, "the log": finished.err.encode()}
        secrets = {"the key": KEYS["OPENAI_API_KEY"], "Anthropic's key": KEYS["ANTHROPIC_API_KEY"]}
        assert sightings({**secrets, "the password": network.password}, places) == []
    return finished


async def replayed(folder: Path, command: list[str], *options: str) -> Finished:
    """The same away from the network, in another place."""
    there = Place(folder / "there", THERE)
    return await there.run(Network(folder), command, *options, offline=True)


@pytest.mark.parametrize("model", ["", "-m gpt-5-codex"])
async def test_codex_replays_offline_over_websocket(tmp_path: Path, model: str) -> None:
    command = codex(f"{QUIET} {model}")
    live = await recorded(tmp_path, command)
    again = await replayed(tmp_path, command, "--strict")

    assert (again.code, again.out) == (0, live.out), again.err
    assert CODEX_ASKS in live.out or "The tools say" in live.out
    assert (live.report["bypassed"], again.report["bypassed"]) == ([], [])
    assert '"method": "WEBSOCKET"' in (tmp_path / "cassettes" / "default.json").read_text()


async def test_codex_replays_offline_over_http(tmp_path: Path) -> None:
    command = codex(f"{QUIET} -m gpt-5-codex")
    live = await recorded(tmp_path, command, "--no-websocket")
    again = await replayed(tmp_path, command, "--no-websocket", "--strict")

    assert (again.code, again.out) == (0, live.out), again.err
    assert "The tools say" in live.out


async def test_codex_ends_well_where_its_other_hosts_are_refused(tmp_path: Path) -> None:
    command = codex("-m gpt-5-codex")
    live = await recorded(tmp_path, command)
    again = await replayed(tmp_path, command)

    assert again.out == live.out, again.err
    assert not [cassette for cassette in again.report["cassettes"] if cassette["misses"]], again.err
    assert again.code == 3
    assert "chatgpt.com:443" in live.report["bypassed"]
    assert "chatgpt.com:443" in again.report["bypassed"]


async def test_what_codex_is_asked_counts(tmp_path: Path) -> None:
    await recorded(tmp_path, codex(f"{QUIET} -m gpt-5-codex"))
    missed = await replayed(tmp_path, codex(f"{QUIET} -m gpt-5-codex", f"{CODEX_ASKS} in French"))

    assert missed.code != 0
    assert "missed: WEBSOCKET" in missed.err


async def test_claude_code_replays_offline_with_its_telemetry(tmp_path: Path) -> None:
    git_repository(tmp_path / "here")
    (tmp_path / "there" / "project").mkdir(parents=True)
    (tmp_path / "there" / "project" / "CLAUDE.md").write_text("Be brief.\n")
    live = await recorded(tmp_path, claude())
    again = await replayed(tmp_path, claude(), "--strict")

    assert (again.code, again.out) == (0, live.out), again.err
    assert "The tools say" in live.out
    cassette = (tmp_path / "cassettes" / "default.json").read_text()
    assert "/api/event_logging/" in cassette
    assert "/api/claude_code/" in cassette
    missed = await replayed(tmp_path, claude(f"{CLAUDE_ASKS} in French"))
    assert "missed: POST /v1/messages" in missed.err
