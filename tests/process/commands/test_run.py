"""`tapeway run -- COMMAND`: the command's own code, its cassettes written, and a report."""

import json
import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

import pytest

from tapeway.testing import ThreadedStandIn
from tests.process.serving import DEADLINE_S
from tests.support import fork_server
from tests.support.inner_run import WITHOUT_OTHERS

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
    folder: Path,
    *options: str,
    command: tuple[str, ...] = (),
    environ: Mapping[str, str] = MappingProxyType({}),
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*fork_server.command(), "run", *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=folder,
        env={**ENVIRON, **environ},
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tapeway", "app.py", "cassettes"]
    assert [path.name for path in (tmp_path / "cassettes/a").glob("[!.]*")] == ["b.json"]


def test_a_recording_that_says_todays_date_is_named_on_the_day_of_recording(tmp_path: Path) -> None:
    today = f"Today is {datetime.now().astimezone():%A, %B %d, %Y}."
    with ThreadedStandIn() as upstream:
        route = f"--route=openai={upstream.url}"
        ended = run(tmp_path, route, "--report=r.json", command=app(tmp_path, today, "two"))

    rule = 'rule: normalise = ["date"]'
    assert (
        f"  1 recording contains today's date and will miss tomorrow; {rule}\n"
        "  says when it was made: #0 POST /v1/chat/completions\n"
    ) in ended.stderr
    (part,) = json.loads((tmp_path / "r.json").read_bytes())["cassettes"]
    named = {"index": 0, "method": "POST", "path": "/v1/chat/completions"}
    assert part["dated"] == [{**named, "kind": "date", "advice": rule}]


def test_the_command_gets_no_token_of_tapeways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {f"TAPEWAY_{text}_TOKEN": "4f6b2c9d8e1a7350" for text in ("ADMIN", "STORE")}
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
    assert (
        "  missed: POST /v1/chat/completions: there is no cassette 'default'; record it"
        in ended.stderr
    )


def test_a_run_names_each_miss_once_and_leaves_a_report(tmp_path: Path) -> None:
    words = ("Today is 2026-11-26.", "It is 2026-11-26.")
    with ThreadedStandIn() as upstream:
        route = f"--route=openai={upstream.url}"
        recorded = run(tmp_path, route, command=app(tmp_path, *words))
    later = [word.replace("-26", "-27") for word in words]
    ended = run(tmp_path, "--mode=replay", command=app(tmp_path, *later))

    assert "last.html" not in recorded.stderr
    assert ended.stderr.count("is not in cassette 'default'") == 2
    assert ended.stderr.count("POST /v1/chat/completions is not") == 2
    assert (
        '  2 misses, one cause: a date; rule: normalise = ["date"] in tapeway.toml [rules]\n'
        in ended.stderr
    )
    assert ended.stderr.endswith("look at it in a browser: .tapeway/last.html\n")
    page = (tmp_path / ".tapeway/last.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "Today is 2026-11-27." in page
    assert (tmp_path / ".tapeway/.gitignore").read_text() == "*\n"


def test_a_run_counts_the_calls_that_its_upstream_failed(tmp_path: Path) -> None:
    with closing(socket.socket()) as unused:
        # A port that is bound and not listened to refuses every connection.
        unused.bind(("127.0.0.1", 0))
        route = f"--route=openai=http://127.0.0.1:{unused.getsockname()[1]}"
        ended = run(tmp_path, "--mode=auto", "--strict", route, command=app(tmp_path, "hi", "no"))

    assert "default: 2 failed\n  failed: upstream_unreachable (2 times)\n" in ended.stderr
    assert "strict: every call failed\n" in ended.stderr
    assert "look at it in a browser: .tapeway/last.html" in ended.stderr


@pytest.mark.parametrize(
    ("mode", "options", "code"), [("record", (), 0), ("auto", (), 0), ("auto", ("--strict",), 3)]
)
def test_a_command_that_ignores_failed_calls_succeeds_with_a_warning(
    mode: str, options: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    ignoring = """
import os, urllib.error, urllib.request
for path in ("/models", "/files"):
    try:
        urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + path).read()
    except urllib.error.HTTPError:
        pass
"""
    command = (sys.executable, "-c", ignoring)
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        route = f"--route=openai=http://127.0.0.1:{unused.getsockname()[1]}"
        ended = run(tmp_path, f"--mode={mode}", *options, route, command=command)

    assert ended.returncode == code
    warning = "warning: the command succeeded, although every call failed and left no recording"
    assert f"{warning} (--strict exits with 3)\n" in ended.stderr
    assert not [*(tmp_path / "cassettes").glob("*.json")]


def test_a_command_that_ignores_a_failed_call_among_others_succeeds_with_a_warning(
    tmp_path: Path,
) -> None:
    ignoring = """
import os, urllib.error, urllib.request
for path in ("/v1/models", "/nowhere"):
    try:
        urllib.request.urlopen(os.environ["TAPEWAY_URL"] + path).read()
    except urllib.error.HTTPError:
        pass
"""
    with ThreadedStandIn() as upstream:
        route = f"--route=openai={upstream.url}"
        ended = run(tmp_path, route, command=(sys.executable, "-c", ignoring))

    assert ended.returncode == 0
    assert (
        "warning: the command succeeded, although 1 of 2 calls failed and left no recording\n"
        in ended.stderr
    )


def test_all_misses_of_a_cassette_that_does_not_exist_are_one_line(tmp_path: Path) -> None:
    command = app(tmp_path, "one", "two", "three")
    ended = run(tmp_path, "--mode=replay", command=command)

    (line,) = [row for row in ended.stderr.splitlines() if "there is no cassette" in row]
    recording = f"tapeway run --mode auto -- {shlex.join(command)}"
    assert line.endswith(f"there is no cassette 'default'; record it with {recording} (3 times)")


def test_a_folder_that_takes_no_report_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / ".tapeway").write_text("a file")
    with ThreadedStandIn() as upstream:
        ended = run(tmp_path, f"--route=openai={upstream.url}", command=app(tmp_path, "one"))

    assert ended.returncode == 0
    assert "warning: .tapeway/last.html cannot be written: " in ended.stderr


def test_a_miss_names_the_report_that_the_run_leaves(tmp_path: Path) -> None:
    told = """
import json, os, urllib.error, urllib.request
try:
    urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/models")
except urllib.error.HTTPError as error:
    print(json.load(error)["tapeway"]["page"])
"""
    command = (sys.executable, "-c", told)
    default = run(tmp_path, "--mode=replay", command=command)
    mine = run(tmp_path, "--mode=replay", "--page-url=https://host/tapeway/", command=command)
    without = run(tmp_path, "--mode=replay", "--admin-listen=off", command=command)

    assert default.stdout.startswith(f"{tmp_path.as_uri()}/.tapeway/last.html#/journal/tw-")
    assert mine.stdout.startswith("https://host/tapeway/#/journal/tw-")
    assert without.stdout == "None\n"


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
    forms = [f"--report=report.{suffix}" for suffix in ("json", "xml", "md", "txt")]
    command = app(tmp_path, "words")
    ended = run(tmp_path, "--mode=replay", *forms, command=command)
    assert ended.returncode == 3
    missed = (
        "POST /v1/chat/completions: there is no cassette 'default'; record it with tapeway run "
        f"--mode auto {shlex.join(forms)} -- {shlex.join(command)}"
    )

    report = json.loads((tmp_path / "report.json").read_text())
    (part,) = report["cassettes"]
    (miss,) = part["misses"]
    assert (miss["method"], miss["path"], miss["times"]) == ("POST", "/v1/chat/completions", 1)
    assert (miss["message"], part["retries"]) == (f"replay miss: {missed}", 0)
    assert report["bypassed"] == []
    tree = ElementTree.parse(tmp_path / "report.xml")  # noqa: S314 - our own
    assert [element.get("message") for element in tree.iter("failure")] == [
        f"replay miss: {missed}"
    ]
    assert f"- `{missed}`" in (tmp_path / "report.md").read_text()
    assert f"missed: {missed}" in (tmp_path / "report.txt").read_text()


def test_a_report_that_cannot_be_written_keeps_no_other_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "taken.txt").mkdir()
    ended = run(tmp_path, "--report=taken.txt", "--report=report.txt", command=("true",))

    assert ended.returncode == 1
    assert "taken.txt cannot be written: Is a directory" in ended.stderr
    assert "no requests" in (tmp_path / "report.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--report", "report.pdf", "--", "true"], "does not end in .json, .xml, .md, .txt"),
        (["--report", "nowhere/report.md", "--", "true"], "there is no folder nowhere"),
        (["--"], "there is no command behind --"),
        ([], "give a command behind --"),
        (["pytest", "--", "-q"], "put -- before the command: 'pytest' is no option"),
        (["--offline", "--mode", "auto", "--", "true"], "--offline replays"),
        (["--", "."], ". cannot be started: Permission denied"),
        (["--mode", "sideways", "--", "true"], "--mode"),
    ],
)
def test_what_cannot_be_used_is_code_2_and_runs_nothing(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    ended = subprocess.run(
        [*fork_server.command(), "run", *arguments],
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


@pytest.mark.slow
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


def recorded(folder: Path, *words: str, cassette: str = "default") -> None:
    """Record one call for each of these words."""
    with ThreadedStandIn() as upstream:
        route = f"--route=openai={upstream.url}"
        ended = run(folder, route, f"--cassette={cassette}", command=app(folder, *words))
    assert ended.returncode == 0, ended.stderr


def test_a_command_without_dashes_runs_with_its_own_options(tmp_path: Path) -> None:
    recorded(tmp_path, "one")
    python, script, *_ = app(tmp_path)
    ended = subprocess.run(
        [*fork_server.command(), "run", "--mode=replay", python, "-W", "error", script, "one"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=tmp_path,
        env=ENVIRON,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "replayed\n"), ended.stderr


def test_a_miss_is_printed_once_with_its_difference_and_how_often_it_came(
    tmp_path: Path,
) -> None:
    recorded(tmp_path, "My name is Ann")
    ended = run(
        tmp_path, "--mode=replay", command=app(tmp_path, "My name is Bob", "My name is Bob")
    )

    assert ended.returncode == 3
    assert (
        "  missed: POST /v1/chat/completions is not in cassette 'default'; nearest #0 differs at "
        "messages[0].content: My name is Ann → My name is Bob (2 times)\n"
    ) in ended.stderr


PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def environment(folder: Path, *options: str, **environ: str) -> dict[str, str]:
    """The environment of the command."""
    ended = subprocess.run(
        [*fork_server.command(), "run", *options, "--", sys.executable, "-c", PRINT_ENVIRONMENT],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=folder,
        env=ENVIRON | environ,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, str] = json.loads(ended.stdout)
    return found


def test_the_command_gets_urls_and_in_replay_dummies_for_the_keys_that_are_not_set(
    tmp_path: Path,
) -> None:
    known = {"GROQ_API_KEY": "mine", "GOOGLE_API_KEY": "mine", "NO_PROXY": "corp.example, a"}
    found = environment(
        tmp_path, "--mode=replay", "--route=my-api=https://api.example", "--route=openai", **known
    )

    url = found["TAPEWAY_URL"]
    assert url.startswith("http://127.0.0.1:")
    assert found["TAPEWAY_ADMIN_URL"] not in ("", url)
    assert found["OPENAI_BASE_URL"] == f"{url}/openai/v1"
    assert found["MY_API_BASE_URL"] == f"{url}/my-api"
    assert found["OPENAI_API_KEY"] == found["ANTHROPIC_API_KEY"] == "replay-needs-no-key"
    assert (found["GROQ_API_KEY"], found["GOOGLE_API_KEY"]) == ("mine", "mine")
    assert "GEMINI_API_KEY" not in found
    assert found["NO_PROXY"] == "corp.example,a,127.0.0.1,localhost"
    assert found["no_proxy"] == "127.0.0.1,localhost"


def test_where_the_upstream_may_be_asked_no_key_is_made_up(tmp_path: Path) -> None:
    found = environment(tmp_path, "--mode=auto", "--admin-listen=off")

    assert not [name for name in found if name.endswith("_API_KEY")]
    assert "TAPEWAY_ADMIN_URL" not in found


@pytest.mark.slow
def test_strict_also_fails_a_run_that_asked_nothing_or_left_recordings(tmp_path: Path) -> None:
    recorded(tmp_path, "one", "two")

    options = ("--mode=replay", "--strict")
    all_used = run(tmp_path, *options, command=app(tmp_path, "one", "two"))
    some_used = run(tmp_path, *options, command=app(tmp_path, "two"))
    none = run(tmp_path, *options, "--cassette=other", command=("true",))
    lenient = run(tmp_path, "--mode=replay", command=("true",))

    assert [each.returncode for each in (all_used, some_used, none, lenient)] == [0, 3, 3, 0]
    assert "strict: 1 recording of default not used\n" in some_used.stderr
    assert "strict: nothing was asked\n" in none.stderr
    assert "strict" not in all_used.stderr + lenient.stderr


def test_strict_names_a_cassette_that_does_not_exist(tmp_path: Path) -> None:
    ended = run(tmp_path, "--mode=replay", "--strict", command=app(tmp_path, "one"))

    assert ended.returncode == 3
    assert "strict: cassette 'default' does not exist\n" in ended.stderr


def held(folder: Path, cassette: str = "default") -> int:
    """How many recordings a cassette has."""
    return len(json.loads((folder / f"cassettes/{cassette}.json").read_text())["interactions"])


@pytest.mark.slow
def test_prune_drops_what_a_clean_run_did_not_use(tmp_path: Path) -> None:
    recorded(tmp_path, "one", "two", "three")
    recorded(tmp_path, "one", cassette="untouched")

    options = ("--mode=replay", "--prune")
    missed = run(tmp_path, *options, command=app(tmp_path, "one", "four"))
    failed = run(tmp_path, *options, command=("sh", "-c", "exit 4"))
    kept = held(tmp_path)
    idle = run(tmp_path, *options, "--cassette=untouched", command=("true",))
    clean = run(tmp_path, *options, "--strict", command=app(tmp_path, "two"))

    assert [each.returncode for each in (missed, failed, idle, clean)] == [3, 4, 0, 0]
    assert all("nothing was pruned" in each.stderr for each in (missed, failed))
    assert (kept, held(tmp_path, "untouched"), held(tmp_path)) == (3, 1, 1)
    assert "default: 2 recordings pruned\n" in clean.stderr


def test_its_help_shows_the_ports_it_takes() -> None:
    command = [*fork_server.command(), "run", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert shown.count("[127.0.0.1:0]") == 2
    assert "8080" not in shown


def edited(file: Path, **meta: object) -> None:
    """Change the `meta` of a cassette; None removes a field."""
    document = json.loads(file.read_bytes())
    document["meta"] = {k: v for k, v in (document["meta"] | meta).items() if v is not None}
    file.write_text(json.dumps(document))


@pytest.mark.slow
def test_stale_recordings_are_named_in_every_form_and_fail_the_run_only_if_asked(
    tmp_path: Path,
) -> None:
    with ThreadedStandIn() as upstream:
        run(tmp_path, f"--route=openai={upstream.url}", command=app(tmp_path, "one"))
    cassette = tmp_path / "cassettes/default.json"
    edited(cassette, checked_at="2026-01-31")
    replay = ("--mode=replay", "--max-age=30d")
    files = [f"--report={tmp_path}/r{ending}" for ending in (".json", ".xml", ".md", ".txt")]
    warned = run(tmp_path, *replay, *files, "--annotations", command=app(tmp_path, "one"))
    failed = run(tmp_path, *replay, "--stale=fail", command=app(tmp_path, "one"))
    before = cassette.read_bytes()
    # The upstream is gone: what is stale is replayed in auto too, and never recorded by itself.
    kept = run(tmp_path, "--max-age=30d", "--stale=fail", command=app(tmp_path, "one"))
    assert (kept.returncode, kept.stdout) == (3, "replayed\n"), kept.stderr
    assert cassette.read_bytes() == before

    named = "#0 POST /v1/chat/completions, of 2026-01-31"
    assert (warned.returncode, warned.stdout) == (0, "replayed\n"), warned.stderr
    assert f"  stale: {named}\n" in warned.stderr
    assert (
        "\n::warning file=cassettes/default.json,line=1,title=tapeway%3A older than they may be::"
        f"cassette default%0A{named}\n" in warned.stderr
    )
    for ending in (".xml", ".md", ".txt"):
        assert named in (tmp_path / f"r{ending}").read_text()
    (part,) = json.loads((tmp_path / "r.json").read_bytes())["cassettes"]
    path = "/v1/chat/completions"
    assert part["stale"] == [{"index": 0, "method": "POST", "path": path, "day": "2026-01-31"}]
    assert (failed.returncode, failed.stdout) == (3, "replayed\n")
    assert "\nstale: 1 recording of default\n" in failed.stderr

    edited(cassette, checked_at=None)
    young = run(tmp_path, *replay, "--stale=fail", command=app(tmp_path, "one"))
    assert young.returncode == 0, young.stderr
    assert json.loads(before)["interactions"] == json.loads(cassette.read_bytes())["interactions"]


@pytest.mark.slow
def test_a_command_may_come_without_two_dashes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    command = (
        *(*fork_server.command(), "run", "--mode=replay"),
        *(sys.executable, "-m", "pytest", "-q", *WITHOUT_OTHERS, "test_it.py"),
    )
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRON, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_an_annotation_names_the_cassettes_file_by_its_path_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "packages" / "a"
    folder.mkdir(parents=True)
    with ThreadedStandIn() as upstream:
        run(folder, f"--route=openai={upstream.url}", command=app(folder, "one"))
    monkeypatch.setitem(ENVIRON, "GITHUB_WORKSPACE", str(tmp_path))
    missed = run(folder, "--mode=replay", "--annotations", command=app(folder, "two"))
    databases = ("--mode=replay", "--annotations", "--store=sqlite:c.db")
    elsewhere = run(folder, *databases, command=app(folder, "two"))

    errors = [line for line in missed.stderr.splitlines() if line.startswith("::error")]
    (error,) = errors
    assert error.startswith("::error file=packages/a/cassettes/default.json,line=1,")
    assert "messages[0].content: one → two" in error
    assert "::error title=tapeway%3A not recorded::" in elsewhere.stderr
