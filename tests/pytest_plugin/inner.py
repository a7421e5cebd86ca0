"""Runs pytest on made-up tests in a folder, with the plugin and without the outer run's settings.

The plugin is in two packages: in `tapeway` itself, and in `tapeway_pytest`, for environments without
tapeway.
"""

import os
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

from tests.support import fork_server, forked_proxies
from tests.support.inner_run import WITHOUT_OTHERS

ENVIRON = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
PROJECT = Path(__file__).parents[2]
CLIENT_FOLDER = PROJECT / "packages" / "python"
PACKAGES = ("tapeway", "tapeway_pytest")
package = PACKAGES[0]
"""The package whose plugin the runs have; `conftest.py` sets it for each test."""
_DEADLINE_S = 120
ARGUMENTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *WITHOUT_OTHERS)

# A client built at import, which a test module shares with its fixtures and threads.
CLIENT = """
import json, os, threading, urllib.error, urllib.request
import pytest

BASE = os.environ.get("OPENAI_BASE_URL", "unset")

def ask(words):
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-of-the-app-01234567"}
    request = urllib.request.Request(BASE + "/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.headers["Tapeway-Outcome"]
    except urllib.error.HTTPError as error:
        with error:
            return error.headers["Tapeway-Outcome"]
"""


def write(folder: Path, tests: str, name: str = "test_it.py") -> None:
    """A test module with the client above."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / name).write_text(f"{CLIENT}\n{tests}")


def run(
    folder: Path, *options: str, upstream: str | None = None, **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Run them; `upstream` is the service behind the route openai."""
    plugin: tuple[str, ...] = ("-p", f"{package}.pytest_plugin.plugin")
    if any(point.name == "tapeway" for point in entry_points(group="pytest11")):
        # The installed plugin is that of tapeway, under this name.
        plugin = () if package == "tapeway" else (*plugin, "-pno:tapeway")
    if upstream is not None:
        environ["TAPEWAY_ROUTE"] = f"openai={upstream}"
    environ |= {
        "PYTHONPATH": os.pathsep.join(map(str, (PROJECT, CLIENT_FOLDER))),
        forked_proxies.COMMAND: "\n".join(fork_server.command()),
    }
    return subprocess.run(
        [
            *fork_server.command(),
            *ARGUMENTS,
            *plugin,
            *("-p", "tests.support.forked_proxies"),
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        cwd=folder,
        env=ENVIRON | environ,
        check=False,
    )


def cassettes(folder: Path) -> dict[str, bytes]:
    """The cassette files by name."""
    root = folder / "cassettes"
    return {
        path.relative_to(root).with_suffix("").as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*.json"))
    }
