"""`tapeway run -- COMMAND`: the command's own code, its cassettes written, and a report."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tapeway.testing import ThreadedStandIn
from tests.process.serving import DEADLINE_S

TAPEWAY = (sys.executable, str(Path(sys.executable).with_name("tapeway")), "run")
ENVIRON = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "PYTHONPATH")}

APP = """
import json, os, sys, urllib.error, urllib.request

for words in sys.argv[1:]:
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer sk-of-the-app-0123"},
    )
    try:
        print(urllib.request.urlopen(request).headers["Tapeway-Outcome"])
    except urllib.error.HTTPError as error:
        print(error.headers["Tapeway-Outcome"])
"""


# Makes the terminal with the given number this session's own, with what follows in front.
IN_FRONT = """
import fcntl, os, sys, termios

fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
os.execv(sys.argv[2], sys.argv[2:])
"""


def run(
    folder: Path, *options: str, command: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TAPEWAY, *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=folder,
        env=ENVIRON,
        check=False,
    )


def app(folder: Path, *words: str) -> tuple[str, ...]:
    script = folder / "app.py"
    script.write_text(APP)
    return (sys.executable, str(script), *words)


def test_a_first_run_records_and_a_second_one_replays(tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        route = f"--route=openai={upstream.url}"
        first = run(tmp_path, route, "--cassette=a/b", command=app(tmp_path, "one", "two"))
    second = run(tmp_path, "--mode=replay", "--cassette=a/b", command=app(tmp_path, "two"))

    assert (first.returncode, first.stdout) == (0, "recorded\nrecorded\n"), first.stderr
    assert (second.returncode, second.stdout) == (0, "replayed\n"), second.stderr
    assert "a/b: 2 recorded\n" in first.stderr
    assert "a/b: 1 replayed, 1 unused\n" in second.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.py", "cassettes"]
    assert [path.name for path in (tmp_path / "cassettes/a").glob("[!.]*")] == ["b.json"]


def test_the_command_gets_no_token_of_tapeways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {f"TAPEWAY_{each}_TOKEN": "4f6b2c9d8e1a7350" for each in ("ADMIN", "STORE")}
    monkeypatch.setitem(ENVIRON, "TAPEWAY_CASSETTE", "mine")
    for name, token in tokens.items():
        monkeypatch.setitem(ENVIRON, name, token)
    told = "import os; print(sorted(name for name in os.environ if name.startswith('TAPEWAY_')))"
    ended = run(tmp_path, "--store=memory:", command=(sys.executable, "-c", told))

    assert ended.returncode == 0, ended.stderr
    assert "TAPEWAY_CASSETTE" in ended.stdout
    assert "TOKEN" not in ended.stdout


def test_a_miss_is_code_3_where_the_command_went_well(tmp_path: Path) -> None:
    ended = run(tmp_path, "--mode=replay", command=app(tmp_path, "never recorded"))

    assert (ended.returncode, ended.stdout) == (3, "miss\n")
    assert "  missed: POST /v1/chat/completions\n" in ended.stderr


@pytest.mark.parametrize(
    ("fate", "code"),
    [("sys.exit(7)", 7), ("import signal; os.kill(os.getpid(), signal.SIGTERM)", 143)],
)
def test_a_command_that_fails_has_its_own_code(tmp_path: Path, fate: str, code: int) -> None:
    command = (sys.executable, "-c", f"import os, sys; {fate}")

    assert run(tmp_path, command=command).returncode == code


@pytest.mark.parametrize(
    ("obstacle", "cassette"),
    [("default.journal", "default"), ("broken.json", "broken")],
    ids=["no journal", "no cassette"],
)
def test_what_could_not_be_recorded_is_code_3_and_is_said(
    tmp_path: Path, obstacle: str, cassette: str
) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        f"import os; os.mkdir('cassettes/{obstacle}')\n"
        "base = os.environ['OPENAI_BASE_URL']\n"
        f"os.environ['OPENAI_BASE_URL'] = base.replace('/openai', '/@{cassette}/openai')\n{APP}"
    )
    (tmp_path / "cassettes").mkdir()
    with ThreadedStandIn() as upstream:
        route = f"--route=openai={upstream.url}"
        ended = run(tmp_path, route, command=(sys.executable, str(script), "one", "two"))

    assert (ended.returncode, ended.stdout) == (3, "error\nerror\n"), ended.stderr
    causes = [line for line in ended.stderr.splitlines() if line.startswith("not kept: ")]
    assert obstacle in causes[0]
    assert len(causes) == len(set(causes))


def test_each_form_of_the_report_goes_by_its_suffix(tmp_path: Path) -> None:
    for suffix in ("json", "xml", "md", "txt"):
        ended = run(
            *(tmp_path, "--mode=replay", f"--report=report.{suffix}"),
            command=app(tmp_path, "words"),
        )
        assert ended.returncode == 3
    missed = "POST /v1/chat/completions"

    (part,) = json.loads((tmp_path / "report.json").read_text())["cassettes"]
    assert (part["misses"], part["retries"]) == ([missed], 0)
    tree = ElementTree.parse(tmp_path / "report.xml")  # noqa: S314 - our own
    assert [each.get("message") for each in tree.iter("failure")] == [missed]
    assert f"- `{missed}`" in (tmp_path / "report.md").read_text()
    assert f"missed: {missed}" in (tmp_path / "report.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--report", "report.pdf", "--", "true"], "does not end in .json, .xml, .md, .txt"),
        (["--report", "nowhere/report.md", "--", "true"], "there is no folder nowhere"),
        (["--"], "there is no command behind --"),
        ([], "give a command behind --"),
        (["true"], "unexpected extra argument"),
        (["--", "./nowhere"], "./nowhere cannot be started: No such file or directory"),
        (["--mode", "sideways", "--", "true"], "--mode"),
    ],
)
def test_what_cannot_be_used_is_code_2_and_runs_nothing(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    ended = subprocess.run(
        [*TAPEWAY, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=tmp_path,
        env=ENVIRON,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr


def test_a_signal_reaches_the_command_and_the_report_comes_all_the_same(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *TAPEWAY,
            "--",
            sys.executable,
            "-c",
            "print('up', flush=True)\nimport signal\nsignal.pause()",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=ENVIRON,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 143
    assert "default: no requests" in err


def test_what_is_typed_reaches_the_command_once_though_its_input_is_no_terminal(
    tmp_path: Path,
) -> None:
    counting = (
        "import signal, time\nheard = []\nsignal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "print('up', flush=True)\nwhile not heard: time.sleep(0.01)\ntime.sleep(0.3)\nprint(len(heard))"
    )
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", IN_FRONT, str(terminal), *TAPEWAY, "--", sys.executable),
            "-c",
            counting,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=ENVIRON,
        pass_fds=(terminal,),
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.write(controller, b"\x03")
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        os.close(terminal)
        os.close(controller)

    assert (process.returncode, out) == (0, "1\n"), err
