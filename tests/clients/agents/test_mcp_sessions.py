"""Sessions of the MCP SDK for TypeScript replay without their server, over both HTTP transports.

`make agents` installs it; the tests are skipped otherwise. `tests/server/proxy/test_mcp_sessions.py`
does the same with the SDK for Python.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "tests" / "clients" / "programs" / "agents"
NODE = ROOT / ".venv-agents" / "node"

pytestmark = [
    pytest.mark.elsewhere,
    pytest.mark.skipif(
        not (NODE / "node_modules" / "@modelcontextprotocol" / "sdk").exists(),
        reason="make agents installs the MCP SDK for TypeScript",
    ),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs, beside the packages that they import."""
    folder = tmp_path_factory.mktemp("programs")
    for path in PROGRAMS.glob("mcp_sessions_*.mjs"):
        shutil.copy(path, folder)
    (folder / "node_modules").symlink_to(NODE / "node_modules")
    return folder


@pytest.fixture(scope="module")
def upstream(programs: Path) -> Iterator[str]:
    port = free_port()
    command = ["node", str(programs / "mcp_sessions_server.mjs"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        yield f"http://127.0.0.1:{port}"
        server.kill()


@pytest.mark.parametrize("end", ["closed", "left"])
@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("kind", ["mcp", "sse"])
def test_sessions_replay_without_their_server(
    kind: str, delivery: str, end: str, programs: Path, upstream: str, tmp_path: Path
) -> None:
    def run(mode: str, url: str) -> str:
        done = subprocess.run(
            [
                *(*fork_server.command(), "run", f"--mode={mode}", f"--delivery={delivery}"),
                *(f"--upstream={url}", "--strict", "--", "node"),
                *(str(programs / "mcp_sessions_client.mjs"), kind, end),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("default:")[0]

    live = run("record", upstream)
    assert live.splitlines() == [
        *("weather", "sunny in Oslo", "sunny in Rome", "sunny in Oslo"),
        "looked at Oslo,looked at Rome,looked at Oslo",
    ]
    assert run("replay", "http://127.0.0.1:1") == live
