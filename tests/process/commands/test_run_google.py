"""Clients of Google that find a login by themselves start in a replay without one."""

import json
import sys
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.process.commands.test_run import run

VERTEX = """
import os
from google import genai
from google.oauth2.credentials import Credentials

given = {"credentials": Credentials("ya29.live-token-0123456789")} if os.environ.get("LIVE") else {}
client = genai.Client(vertexai=True, project="project-1", location="us-central1", **given)
print(client.models.generate_content(model="gemini-3-flash", contents="hello").text)
"""
LOGIN = """
import json, os
import google.auth
from google.auth.transport.requests import Request

credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(Request())
file = os.environ["GOOGLE_APPLICATION_CREDENTIALS"]
print(json.dumps([credentials.token, project, json.load(open(file))["token_uri"], os.environ["TAPEWAY_URL"], file, os.stat(os.path.dirname(file)).st_mode & 0o777]))
"""


def program(folder: Path, text: str) -> tuple[str, ...]:
    (folder / "program.py").write_text(text)
    return (sys.executable, str(folder / "program.py"))


@pytest.mark.parametrize("offline", [False, True])
def test_google_s_own_library_gets_a_token_of_the_proxy(tmp_path: Path, offline: bool) -> None:
    options = ("--offline",) if offline else ("--mode=replay",)
    finished = run(tmp_path, *options, command=program(tmp_path, LOGIN))

    assert finished.returncode == 0, finished.stderr
    token, project, address, proxy, file, mode = json.loads(finished.stdout)
    assert token == "replay-needs-no-key"
    assert project == "replay-needs-no-project"
    assert address.startswith(f"{proxy}/")
    assert mode == 0o700
    assert not Path(file).exists()
    assert "PRIVATE" not in finished.stdout + finished.stderr
    assert "no requests" in finished.stderr


def test_a_client_of_vertex_is_replayed_without_a_login(tmp_path: Path) -> None:
    command = program(tmp_path, VERTEX)
    with ThreadedStandIn() as upstream:
        live = run(
            *(tmp_path, f"--route=vertex={upstream.url}"), command=("env", "LIVE=1", *command)
        )
    replayed = run(tmp_path, "--offline", command=command)

    assert live.returncode == 0, live.stderr
    assert (replayed.returncode, replayed.stdout) == (0, live.stdout), replayed.stderr
    assert "bypassed" not in replayed.stderr


def test_a_live_run_and_one_without_vertex_get_no_login(tmp_path: Path) -> None:
    show = (
        sys.executable,
        "-c",
        "import os; print(os.environ.get('GOOGLE_APPLICATION_CREDENTIALS'))",
    )
    live = run(tmp_path, command=show)
    off = run(tmp_path, "--mode=replay", "--route=vertex=off", command=show)

    assert (live.stdout, off.stdout) == ("None\n", "None\n")
