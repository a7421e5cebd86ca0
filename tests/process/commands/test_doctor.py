"""`tapeway doctor -- COMMAND`: the command runs twice around a proxy of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from soak.clusters import libfaketime
from tapeway.testing import ThreadedStandIn
from tests.process.serving import DEADLINE_S
from tests.support import fork_server
from tests.support.inner_run import WITHOUT_OTHERS

TAPEWAY = (sys.executable, str(Path(sys.executable).with_name("tapeway")))

APP = """
import json, os, sys, urllib.request, uuid

def ask(words, agent=None, **more):
    body = {"model": "m", "messages": [{"role": "user", "content": words}], **more}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer sk-of-the-app-0123"},
    )
    if agent:
        request.add_header("User-Agent", agent)
    print("the app said", urllib.request.urlopen(request).status)
"""


def doctor(folder: Path, app: str, *options: str) -> "subprocess.CompletedProcess[str]":
    script = folder / "app.py"
    script.write_text(APP + app)
    return subprocess.run(
        [*fork_server.command(), "doctor", *options, "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "PYTHONPATH")},
        check=False,
    )


def found(ended: "subprocess.CompletedProcess[str]") -> Any:
    return json.loads(ended.stdout)


def test_what_varies_from_run_to_run_is_found_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        ended = doctor(
            tmp_path,
            'ask("hello", user=str(uuid.uuid4()), prompt_cache_key=f"pid-{os.getpid()}")\n',
            *("--format", "json", "--route", f"openai={upstream.url}"),
        )
        asked = [request.target for request in upstream.requests]

    assert ended.returncode == 0, ended.stderr
    assert found(ended)["rules"] == {"ignore": ["body.prompt_cache_key"], "normalise": ["uuid"]}
    assert asked == 2 * ["/v1/chat/completions"]
    assert ended.stderr.count("the app said 200") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]


def test_presets_are_in_force_and_another_prompt_is_not_explained(tmp_path: Path) -> None:
    app = (
        'ask("hello", agent="claude-cli/2.1", metadata={"user_id": str(uuid.uuid4())})\n'
        'ask(os.urandom(20).hex().translate(str.maketrans("0123456789", "ghijklmnop")))\n'
    )
    with ThreadedStandIn() as upstream:
        ended = doctor(tmp_path, app, *("--format", "json", "--route", f"openai={upstream.url}"))

    diagnosis = found(ended)
    assert (ended.returncode, diagnosis["rules"]) == (1, {})
    (cassette,) = diagnosis["cassettes"]
    assert cassette["equal"] == 1
    assert [difference["path"] for difference in cassette["differences"]] == [
        "body.messages[0].content"
    ]


def test_each_cassette_of_a_run_is_compared_with_its_own(tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        ended = doctor(
            tmp_path,
            'base = os.environ["OPENAI_BASE_URL"]\n'
            'for name in ("a", "b"):\n'
            '    os.environ["OPENAI_BASE_URL"] = base.replace("/openai", f"/@{name}/openai")\n'
            "    ask(name, seed=os.getpid())\n",
            *("--format", "json", "--route", f"openai={upstream.url}"),
        )

    parts = found(ended)["cassettes"]
    assert [part["first"] for part in parts] == ["a (first run)", "b (first run)"]
    assert [part["rules"] for part in parts] == 2 * [{"ignore": ["body.seed"]}]


def test_a_run_that_asks_something_else_is_code_1(tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        ended = doctor(
            tmp_path,
            'ask("once")\n'
            'if os.path.exists("again"):\n'
            '    ask("and again")\n'
            'open("again", "w").close()\n',
            *("--route", f"openai={upstream.url}"),
        )

    assert ended.returncode == 1
    assert "1 call only in default (second run):" in ended.stdout


def test_the_rules_of_the_file_are_in_force(tmp_path: Path) -> None:
    (tmp_path / "tapeway.toml").write_text('mode = "replay"\n[rules]\nnormalise = ["uuid"]\n')
    with ThreadedStandIn() as upstream:
        ended = doctor(
            tmp_path,
            'ask("hello", user=str(uuid.uuid4()))\n',
            *("--route", f"openai={upstream.url}"),
        )

    assert (ended.returncode, ended.stdout) == (
        0,
        "default (first run) and default (second run): 1 call equal\n\nNo rule is needed.\n",
    )


@pytest.mark.parametrize(
    ("app", "code"),
    [("sys.exit(7)\n", 7), ("import signal\nos.kill(os.getpid(), signal.SIGKILL)\n", 137)],
)
def test_a_command_that_fails_is_said_with_its_code(tmp_path: Path, app: str, code: int) -> None:
    with ThreadedStandIn() as upstream:
        ended = doctor(tmp_path, f'ask("x")\n{app}', "--route", f"openai={upstream.url}")

    assert ended.returncode == 1
    assert [line for line in ended.stderr.splitlines() if line.startswith("The command")] == [
        f"The command ended with code {code} in its first run.",
        f"The command ended with code {code} in its second run.",
    ]
    assert "1 call equal" in ended.stdout


def test_a_command_that_makes_no_call_is_told_so(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Nothing was recorded" in ended.stderr


def test_the_second_run_is_days_later_or_doctor_says_that_it_cannot_be(tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        ended = doctor(
            tmp_path,
            'import datetime\nask(f"Today is {datetime.date.today():%A, %B %d, %Y}.")\n',
            *("--days", "3", "--format", "json", "--route", f"openai={upstream.url}"),
        )
        asked = len(upstream.requests)

    if libfaketime() is None:
        assert (ended.returncode, ended.stdout, asked) == (2, "", 0)
        assert "cannot be moved, since libfaketime is not installed: install it" in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
        assert found(ended)["rules"] == {"normalise": ["date"]}


def test_a_command_that_is_none_is_code_127(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*TAPEWAY, "doctor", "--", str(tmp_path / "nowhere")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=tmp_path,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (127, "")
    assert "nowhere cannot be started: there is no such program" in ended.stderr


PROJECT = """
import uuid
import app, pytest

@pytest.mark.parametrize("n", [1, 2])
def test_it(n):
    app.ask(f"hello {n}", user=str(uuid.uuid4()))

def test_another(cassette):
    app.ask("another")
    assert cassette.mode == "record"
"""


def test_the_tests_of_a_project_that_uses_the_plugin_are_recorded_twice(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_it.py").write_text(PROJECT)
    (tmp_path / "tapeway.toml").write_text('mode = "replay"\n')
    command = (sys.executable, "-m", "pytest", "-q", *WITHOUT_OTHERS)
    with ThreadedStandIn() as upstream:
        ended = subprocess.run(
            [
                *(*fork_server.command(), "doctor", "--format", "json"),
                *("--route", f"openai={upstream.url}", "--", *command),
            ],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=tmp_path,
            env={k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "PYTHONPATH")},
            check=False,
        )
        asked = len(upstream.requests)

    assert ended.returncode == 0, ended.stderr
    assert asked == 6
    assert found(ended)["rules"] == {"normalise": ["uuid"]}
    assert [cassette["first"] for cassette in found(ended)["cassettes"]] == [
        f"test_it/{text} (first run)" for text in ("test_another", "test_it-1", "test_it-2")
    ]
    assert not (tmp_path / "cassettes").exists()
