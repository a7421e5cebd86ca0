"""Agents replay with no rule on another machine: another home, folder and date.

Each is the real package, recorded against the stand-in, which is stopped before the replay. What
`make test` does not install is installed by `make agents`; its tests are skipped otherwise.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.support import fork_server
from tests.support.ports import free_port
from tests.support.thoroughness import runs_everything

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "tests" / "clients" / "programs" / "agents"
NODE_MODULES = ROOT / ".venv-agents" / "node" / "node_modules"
CLAUDE, CODEX = NODE_MODULES / ".bin" / "claude", NODE_MODULES / ".bin" / "codex"

HERE = "Etc/GMT+12"
THERE = "Pacific/Kiritimati"
"""26 hours apart: never the same date."""

OPENAI_3, OPENAI_2 = ".venv-agents", ".venv-agents/openai2"
PYTHON_AGENTS = [
    ("pydantic_agents gemini-2.0-flash", "", "pydantic_ai"),
    ("pydantic_agents gemini-2.5-flash anthropic:claude-sonnet-5", OPENAI_3, "pydantic_ai"),
    ("pydantic_agents openai-chat:gpt-4o openai-responses:gpt-4o", OPENAI_3, "pydantic_ai"),
    ("openai_agents", OPENAI_3, "agents"),
    ("openai_socket_agents", OPENAI_3, "agents"),
    ("langgraph_agents", OPENAI_3, "langgraph"),
    ("autogen_agents", OPENAI_3, "autogen_agentchat"),
    ("llama_index_agents", OPENAI_2, "llama_index"),
    ("crewai_agents", OPENAI_2, "crewai"),
]
"""Programs with their arguments, the environments they run in (the tests' own for none), and the
packages they need there.
"""

HELLO = "Please use {} {} and tell me"
CLAUDE_ASKS = HELLO.format("Bash", '{"command": "echo hello"}')
CODEX_ASKS = HELLO.format("exec_command", '{"cmd": "echo hello"}')


@dataclass(frozen=True, slots=True)
class Machine:
    """Where an agent runs: a home, a folder and a time zone of its own."""

    root: Path
    zone: str
    more: dict[str, str] = field(default_factory=dict)

    def run(
        self, mode: str, upstream: str, store: Path, command: list[str], *options: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command within `tapeway run`, with a key of no worth for each service."""
        home, folder = self.root / "home", self.root / "project"
        home.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            **{"HOME": str(home), "TZ": self.zone, "PYTHONWARNINGS": "ignore"},
            **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"), "none"),
            # Only calls to the model are of interest.
            **{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
            **self.more,
        }
        routes = [f"--route={name}={upstream}" for name in ("openai", "anthropic", "gemini")]
        return subprocess.run(
            [
                *(*fork_server.command(), "run", f"--mode={mode}", f"--store={store}", *routes),
                *(*options, "--log-format=json", "--", *command),
            ],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run that was recorded on one machine, whose upstream is gone."""

    folder: Path
    upstream: str
    stdout: str

    @property
    def rules(self) -> object:
        """The rules in the cassette's `meta`."""
        text = (self.folder / "cassettes" / "default.json").read_text(encoding="utf-8")
        return json.loads(text)["meta"].get("rules")

    def replay(
        self, command: list[str], *options: str, **more: str
    ) -> "subprocess.CompletedProcess[str]":
        """Replay on another machine; 3 is a miss, or a recording not used."""
        machine = Machine(self.folder / "there", THERE, more)
        store = self.folder / "cassettes"
        return machine.run("replay", self.upstream, store, command, "--strict", *options)

    def misses(self, command: list[str]) -> bool:
        """Whether a replay on another machine finds that the prompt is not recorded."""
        replayed = self.replay(command)
        return replayed.returncode != 0 and "missed: POST" in replayed.stderr


Record = Callable[..., Recorded]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Record a command on one machine."""

    def recorded(command: list[str], *options: str) -> Recorded:
        with ThreadedStandIn() as upstream:
            machine, store = Machine(tmp_path / "here", HERE), tmp_path / "cassettes"
            done = machine.run("auto", upstream.url, store, command, *options)
            assert done.returncode == 0, done.stderr
            assert "The tools say" in done.stdout
            return Recorded(tmp_path, upstream.url, done.stdout)

    return recorded


def python_of(environment: str, package: str) -> str:
    """The interpreter of an environment that has this package; skips where there is none."""
    if not environment:
        found = importlib.util.find_spec(package) is not None
    else:
        found = any((ROOT / environment / "lib").glob(f"python3*/site-packages/{package}"))
    if not found:
        pytest.skip(f"{package} is not installed: `make agents`")
    return str(ROOT / environment / "bin" / "python") if environment else sys.executable


def need(program: Path) -> str:
    if not program.exists():
        pytest.skip(f"{program.name} is not installed: `make agents`")
    return str(program)


@pytest.mark.slow
@pytest.mark.skipif(not runs_everything(), reason="tests/clients/end_to_end loops with SDKs: --all")
@pytest.mark.parametrize(("program", "environment", "package"), PYTHON_AGENTS)
def test_an_agent_of_a_framework_replays_elsewhere(
    program: str, environment: str, package: str, record: Record
) -> None:
    name, *arguments = program.split()
    command = [python_of(environment, package), str(PROGRAMS / f"{name}.py"), *arguments]
    recorded = record(command)

    replayed = recorded.replay(command)

    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
    assert recorded.rules is None


@pytest.mark.slow
def test_vercel_s_ai_replays_elsewhere(record: Record) -> None:
    need(NODE_MODULES / "ai")
    # Node looks for packages beside the program.
    program = shutil.copy(PROGRAMS / "vercel_ai.mjs", NODE_MODULES.parent)
    command = ["node", str(program)]
    recorded = record(command)

    replayed = recorded.replay(command)

    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


def git_repository(folder: Path) -> None:
    """Make the project of a machine a repository with a change in it."""
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "CLAUDE.md").write_text("Be brief.\n")
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b.test"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)


@pytest.mark.slow
def test_claude_code_replays_elsewhere(record: Record, tmp_path: Path) -> None:
    flags = ["--tools", "Bash", "--allowedTools", "Bash(echo:*)"]
    command = [need(CLAUDE), "-p", CLAUDE_ASKS, *flags]
    git_repository(tmp_path / "here")
    (tmp_path / "there" / "project").mkdir(parents=True)
    (tmp_path / "there" / "project" / "CLAUDE.md").write_text("Be brief.\n")
    recorded = record(command)
    assert recorded.rules == {"presets": ["claude-code"]}
    assert "hello" in recorded.stdout

    replayed = recorded.replay(command)
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr

    # What it is told still counts.
    assert recorded.misses([*command, "--append-system-prompt", "In French."])
    (tmp_path / "there" / "project" / "CLAUDE.md").write_text("Be polite.\n")
    assert recorded.misses(command)


@pytest.mark.slow
def test_claude_s_agent_sdk_replays_elsewhere(record: Record) -> None:
    python = python_of(".venv-agents", "claude_agent_sdk")
    command = [python, str(PROGRAMS / "claude_agents.py"), need(CLAUDE)]
    recorded = record(command)
    assert recorded.rules == {"presets": ["claude-code"]}

    replayed = recorded.replay(command)
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


@pytest.mark.slow
def test_codex_replays_elsewhere(record: Record) -> None:
    provider = (
        'model_providers.t={name="t",base_url="$URL",env_key="OPENAI_API_KEY",wire_api="responses"}'
    )
    script = (
        f"""exec "$0" exec --skip-git-repo-check -s danger-full-access -m gpt-5-codex """
        f"""-c model_provider=t -c "$(echo '{provider}' | sed "s#.URL#$OPENAI_BASE_URL#")" "$1\""""
    )
    command = ["sh", "-c", script, need(CODEX), CODEX_ASKS]
    recorded = record(command)
    assert recorded.rules == {"presets": ["codex"]}

    replayed = recorded.replay(command)
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
    assert recorded.misses([*command[:-1], f"{CODEX_ASKS} in French"])


@pytest.mark.slow
def test_without_presets_claude_code_replays_where_it_was_recorded_only(record: Record) -> None:
    command = [need(CLAUDE), "-p", CLAUDE_ASKS, "--tools", "Bash", "--allowedTools", "Bash(echo:*)"]
    recorded = record(command, "--no-presets")

    assert recorded.rules is None
    assert recorded.misses(command)


@contextmanager
def mcp_server(python: str) -> Iterator[str]:
    """The URL of an MCP server, until the end."""
    port = free_port()
    server = subprocess.Popen(
        [python, str(PROGRAMS / "mcp_server.py"), str(port)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        assert any("running on" in line for line in server.stderr)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.communicate(timeout=60)


@pytest.mark.slow
def test_mcp_with_a_question_to_the_caller_replays_without_its_server(tmp_path: Path) -> None:
    python = python_of(OPENAI_3, "mcp")
    command, store = [python, str(PROGRAMS / "mcp_client.py")], tmp_path / "cassettes"
    with mcp_server(python) as url:
        here = Machine(tmp_path / "here", HERE)
        recorded = here.run("auto", url, store, command, f"--upstream={url}")
    assert recorded.returncode == 0, recorded.stderr
    assert "asked Which city?" in recorded.stdout
    assert "sunny in Málaga" in recorded.stdout

    replayed = Recorded(tmp_path, url, recorded.stdout).replay(command, f"--upstream={url}")

    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
