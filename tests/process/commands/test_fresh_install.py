"""The built wheel in an environment of its own: record, replay offline, and see what changed.

`make fresh` builds the wheel and makes the environment; without it these tests are skipped.
"""

import json
import os
import re
import subprocess
import tarfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tapeway.web.files import page_files
from tests.support.markdown import ROOT, blocks
from tests.support.shell_blocks import UPSTREAM, Shell

BIN = ROOT / "build" / "fresh" / "tapeway" / "bin"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "tapeway").exists(), reason="`make fresh` installs the wheel"),
]

TESTS = """
import pytest
from openai import OpenAI

client = OpenAI()

@pytest.mark.parametrize("animal", ["spider", "beetle"])
def test_animal(animal):
    question = {"role": "user", "content": f"Name a {animal}."}
    answer = client.chat.completions.create(model="gpt-4o", messages=[question])
    assert animal in answer.choices[0].message.content
"""
DIFFERENCE = "messages[0].content: Name a spider. → Name one spider."


def run(folder: Path, *command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of the environment in a folder, with nothing of ours in its environment."""
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), **environ},
        check=False,
    )


def test_pytest_records_replays_offline_and_says_what_changed(tmp_path: Path) -> None:
    file = tmp_path / "test_animals.py"
    file.write_text(TESTS)
    with ThreadedStandIn() as upstream:
        there = {
            "TAPEWAY_ROUTE": f"openai={upstream.url}",
            "OPENAI_API_KEY": "sk-of-mine-0123456789",
        }
        recorded = run(tmp_path, "pytest", "-q", "--tapeway=record", **there)
    replayed = run(tmp_path, "pytest", "-q", "-n2", "--tapeway-strict", "--tapeway-report=r.json")
    file.write_text(TESTS.replace("Name a {animal}", "Name one {animal}"))
    changed = run(tmp_path, "pytest", "-q", "-n2")

    assert recorded.returncode == 0, recorded.stdout + recorded.stderr
    assert "2 recorded" in recorded.stdout
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert json.loads((tmp_path / "r.json").read_bytes())["upstream_connections"] == 0
    assert changed.returncode == 1
    assert "2 failed" in changed.stdout
    assert DIFFERENCE in changed.stdout


def test_tapeway_pytest_alone_records_and_replays_with_a_tapeway_on_the_path(
    tmp_path: Path,
) -> None:
    client = ROOT / "build" / "fresh" / "tapeway-pytest" / "bin"
    tests = """
import importlib.util, json, os, urllib.request

def test_animal():
    assert not importlib.util.find_spec("tapeway") and not importlib.util.find_spec("pydantic")
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Name a spider."}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode())
    assert b"spider" in urllib.request.urlopen(request).read()
"""
    (tmp_path / "test_animal.py").write_text(tests)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tapeway").symlink_to(BIN / "tapeway")
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}

    def pytest_of_client(*options: str, **more: str) -> str:
        return subprocess.run(
            [client / "pytest", "-q", *options],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**environ, **more},
            check=False,
        ).stdout

    with ThreadedStandIn() as upstream:
        route = f"openai={upstream.url}"
        recorded = pytest_of_client("--tapeway=record", TAPEWAY_ROUTE=route)
    replayed = pytest_of_client("--tapeway-strict")

    assert "1 recorded" in recorded, recorded
    assert "1 replayed" in replayed, replayed
    assert "1 passed" in replayed


def test_tapeway_run_records_replays_offline_and_says_what_changed(tmp_path: Path) -> None:
    file = tmp_path / "ask.py"
    program = TESTS.partition("@pytest")[0].replace("import pytest\n", "") + (
        'question = {"role": "user", "content": "Name a spider."}\n'
        'print(client.chat.completions.create(model="gpt-4o", messages=[question]).id)\n'
    )
    file.write_text(program)
    with ThreadedStandIn() as upstream:
        route = f"--route=openai={upstream.url}"
        recorded = run(tmp_path, "tapeway", "run", route, "python", "ask.py", OPENAI_API_KEY="mine")
    replay = ("tapeway", "run", "--mode=replay", "--strict", "--offline")
    replayed = run(tmp_path, *replay, "python", "ask.py")
    file.write_text(program.replace("Name a spider", "Name one spider"))
    changed = run(tmp_path, *replay, "python", "ask.py")

    assert recorded.returncode == 0, recorded.stderr
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
    assert changed.returncode != 0
    assert DIFFERENCE in changed.stderr


def test_the_wheel_holds_every_file_of_the_page(tmp_path: Path) -> None:
    program = "from tapeway.web.files import page_files; print(*sorted(page_files()), sep='\\n')"

    installed = run(tmp_path, "python", "-c", program)

    assert installed.stdout.splitlines() == sorted(page_files())


def test_the_readme_from_its_beginning_runs_as_pasted(tmp_path: Path) -> None:
    listen = {"TAPEWAY_LISTEN": "127.0.0.1:8080", "TAPEWAY_ADMIN_LISTEN": "127.0.0.1:8081"}
    provider = {"TAPEWAY_ROUTE": f"openai={UPSTREAM}"}
    printed: list[str] = []
    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes", folder=tmp_path, programs=BIN)
        sections = {"": listen, "In a test": provider, "Around a command": provider}
        for section, environ in sections.items():
            pasted = [
                block.text for block in blocks("README.md", section) if block.language == "sh"
            ]
            text = "\n".join(pasted).replace("pip install", ": pip install")
            printed.append(shell.run(text, environ))
    demo, in_a_test, around_a_command = printed

    assert demo.index("Tapeway-Outcome: recorded") < demo.index("Tapeway-Outcome: replayed")
    assert in_a_test.count("1 passed") == 2
    assert in_a_test.index("1 recorded") < in_a_test.index("1 replayed")
    assert around_a_command.count("“Say hello”") == 2


def test_the_readme_s_test_is_green_without_a_key_and_without_a_network(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    [recording] = re.findall(r"`(TAPEWAY_ROUTE=.* pytest .*)`", readme)
    written = [block.text for block in blocks("README.md", "In a test") if "cat >" in block.text]
    start = "python -m tapeway.testing --port 9000 &"
    assert start in readme
    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes", folder=tmp_path, programs=BIN)
        text = "\n".join(
            [*written, start, recording, "kill %1", "unset OPENAI_API_KEY", "pytest -q"]
        )
        printed = shell.run(text.replace("pip install", ": pip install"))

    assert printed.index("1 recorded") < printed.index("1 replayed")
    assert printed.count("1 passed") == 2


def test_the_source_archive_holds_what_make_needs() -> None:
    [archive] = (ROOT / "build" / "fresh" / "built").glob("tapeway-*.tar.gz")
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    # Folders of src under another name, with their own archive.
    linked = "packages/python/tapeway_pytest/"

    assert {path for path in tracked if not path.startswith((".", linked))} <= packed
