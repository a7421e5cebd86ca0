"""docs/guides: each example is recorded in front of the stand-in, and replayed without it.

What an example needs is in the environments of `make agents` and `make clients`; where it is not
installed, the test is skipped. By default one stands for those that all go the same way.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tapeway.cli.run.google_login import VARIABLE, token, write_login
from tapeway.testing import ThreadedStandIn
from tests.support import fork_server
from tests.support.markdown import ROOT, blocks
from tests.support.ports import free_port
from tests.support.serving_thread import serving
from tests.support.thoroughness import runs_everything

GUIDES = sorted(path.stem for path in ROOT.glob("docs/guides/*.md") if path.stem != "index")
NODE = ROOT / ".venv-agents" / "node"
AGENTS, OPENAI_2, LITELLM = ".venv-agents", ".venv-agents/openai2", ".venv-clients"
_FILE = re.compile(r"^`([\w.]+)`[:.,]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """The environment that an example runs in (the tests' own for none) and a package it needs."""

    environment: str
    package: str


EXAMPLES: Mapping[str, Example] = {
    "anthropic": Example("", "anthropic"),
    "bedrock": Example("", "boto3"),
    "claude-code": Example(AGENTS, "claude_agent_sdk"),
    "crewai": Example(OPENAI_2, "crewai"),
    "dspy": Example(LITELLM, "dspy"),
    "langgraph": Example(AGENTS, "langgraph"),
    "litellm": Example(LITELLM, "litellm"),
    "llama-index": Example(OPENAI_2, "llama_index"),
    "mcp": Example("", "mcp"),
    "ollama": Example("", "ollama"),
    "openai": Example("", "openai"),
    "openai-agents": Example(AGENTS, "agents"),
    "pydantic-ai": Example(AGENTS, "pydantic_ai"),
    "vercel-ai": Example("", ""),
    "vertex": Example("", "google/genai"),
}


FROM_NPM = {"claude-code": "@anthropic-ai/claude-code", "vercel-ai": "ai"}


def test_the_index_has_every_guide() -> None:
    index = (ROOT / "docs/guides/index.md").read_text("utf-8")

    assert sorted(re.findall(r"^\| \[[^\]]+\]\(([\w-]+)\.md\)", index, re.MULTILINE)) == GUIDES
    assert sorted(EXAMPLES) == GUIDES


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [guide for guide in GUIDES if guide != "mcp"] if runs_everything() else ["ollama"]
)
def test_an_example_replays_what_it_recorded(name: str, tmp_path: Path) -> None:
    environment = _environment(name, tmp_path)
    _write_programs(name, tmp_path)
    recording, replaying = _commands(name)
    with ThreadedStandIn() as service:
        names = ("openai", "anthropic", "ollama", "bedrock", "vertex")
        there = {"TAPEWAY_ROUTE": ",".join([f"{other_name}={service.url}" for other_name in names])}
        forked = _forked(name, environment)
        with _google_login(tmp_path) as login:
            keys = KEYS | (login if name == "vertex" else {})
            recorded = [_run(block, forked | keys | there, tmp_path) for block in recording]
        assert service.requests

    replayed = [_run(block, environment, tmp_path) for block in replaying]

    assert replayed == recorded
    assert all(recorded)


@pytest.mark.slow
@pytest.mark.skipif(not runs_everything(), reason="one guide stands for all: --all")
def test_mcp_replays_without_its_server(tmp_path: Path) -> None:
    environment = _environment("mcp", tmp_path)
    port = free_port()
    _write_programs("mcp", tmp_path, {"port=8090": f"port={port}"})
    commands = [
        [command.replace(":8090", f":{port}") for command in commands]
        for commands in _commands("mcp")
    ]
    with _server(tmp_path):
        [recorded] = [_run(command, environment, tmp_path) for command in commands[0]]

    [replayed] = [_run(command, environment, tmp_path) for command in commands[1]]

    assert replayed == recorded
    assert "sunny in Oslo" in recorded


KEYS = dict.fromkeys(
    ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "none"
)


@contextmanager
def _google_login(folder: Path) -> Iterator[dict[str, str]]:
    """A service account, and what issues tokens for it."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Tokens)) as issuer:
        address = f"http://127.0.0.1:{issuer.server_port}"
        yield {VARIABLE: str(write_login(folder, address, "my-project"))}


class _Tokens(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = token("ya29.a-token-of-the-tests")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _environment(name: str, home: Path) -> dict[str, str]:
    """Variables with the programs of the example's environment; skips where it is not there."""
    example = EXAMPLES[name]
    environment = ROOT / example.environment if example.environment else Path(sys.prefix)
    packages = environment.glob(f"lib/python3*/site-packages/{example.package or '.'}")
    if not any(packages):
        pytest.skip(f"{example.package} is not installed: `make agents`, `make clients`")
    programs = [fork_server.program().parent, environment / "bin", NODE / "node_modules" / ".bin"]
    if name in FROM_NPM and not (NODE / "node_modules" / FROM_NPM[name]).exists():
        pytest.skip(f"{FROM_NPM[name]} is not installed: `make agents`")
    return {
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "HOME": str(home),
        "PYTHONWARNINGS": "ignore",
        "LANG": "C.UTF-8",
    }


def _forked(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The same with an interpreter that has imported what is slow to import.

    It is not confined by `--offline`, so the replay needs one of its own.
    """
    if EXAMPLES[name].environment != LITELLM:
        return {**environment}
    python = fork_server.python(str(ROOT / LITELLM / "bin" / "python"), "dspy", "litellm")
    return {**environment, "PATH": f"{python.parent}:{environment['PATH']}"}


def _write_programs(name: str, folder: Path, instead: Mapping[str, str] | None = None) -> None:
    """Write each program of a page under the name that is above it."""
    page = f"docs/guides/{name}.md"
    programs = [block.text for block in blocks(page) if block.language in ("python", "js")]
    files = _FILE.findall((ROOT / page).read_text("utf-8"))
    assert len(files) == len(programs) > 0
    for file, program in zip(files, programs, strict=True):
        for word, other in (instead or {}).items():
            program = program.replace(word, other)
        (folder / file).write_text(program)
    if name == "vercel-ai":
        # Node.js looks for packages beside the program.
        (folder / "node_modules").symlink_to(NODE / "node_modules")


def _commands(name: str) -> tuple[list[str], list[str]]:
    """The blocks that record and those that replay."""
    shell = [block.text for block in blocks(f"docs/guides/{name}.md") if block.language == "sh"]
    runs = [line for line in shell if "tapeway run" in line]
    replaying = [run for run in runs if "--mode replay --offline" in run]
    recording = [run for run in runs if run not in replaying]
    assert len(recording) == len(replaying) > 0
    return recording, replaying


def _run(command: str, environment: Mapping[str, str], folder: Path) -> str:
    """What a block prints on standard output."""
    done = subprocess.run(
        ["bash", "-ec", command],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _server(folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        server = subprocess.Popen(
            [sys.executable, "server.py"], cwd=folder, stderr=subprocess.PIPE, text=True
        )
        stack.callback(server.communicate, timeout=60)
        stack.callback(server.terminate)
        assert server.stderr is not None
        assert any("running on" in line for line in server.stderr)
        yield
