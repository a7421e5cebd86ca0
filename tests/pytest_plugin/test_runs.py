"""Whole runs: what is recorded by one is replayed by the next, each test from its own cassette."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tapeway.testing import ThreadedStandIn
from tests.pytest_plugin.inner import cassettes, run, write
from tests.support.thoroughness import examples

TESTS = """
@pytest.fixture(scope="session")
def login():
    yield ask("log in")
    ask("log out")

@pytest.fixture(scope="module")
def document():
    return ask("open a document")

def test_one(login):
    assert ask("one") != "error"

@pytest.mark.parametrize("n", [1, 2])
def test_many(n, document):
    assert ask(f"many {n}") != "error"

class TestThreads:
    def test_thread(self):
        thread = threading.Thread(target=ask, args=["in a thread"])
        thread.start()
        thread.join()

@pytest.mark.tapeway(cassette="shared/by-two")
def test_first():
    assert ask("shared") != "error"

@pytest.mark.tapeway(cassette="shared/by-two")
def test_second():
    assert ask("shared") != "error"

def test_nothing():
    pass
"""
NAMES = [
    *("fixtures.session", "shared/by-two", "test_it/TestThreads.test_thread"),
    *("test_it/fixtures.module", "test_it/test_many-1", "test_it/test_many-2", "test_it/test_one"),
]


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ThreadedStandIn() as found:
        yield found.url


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    write(folder, TESTS)
    done = run(folder, "--tapeway=record", upstream=upstream)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture
def recorded(recorded_once: Path, tmp_path: Path) -> Path:
    """A folder with the tests above, recorded."""
    return Path(shutil.copytree(recorded_once, tmp_path / "recorded"))


def test_a_recorded_run_replays_offline_under_xdist_and_under_k(recorded: Path) -> None:
    before = cassettes(recorded)
    whole = run(
        recorded,
        *("-n2", "--tapeway-unused=fail", "--tapeway-orphans", "--tapeway-report=r.json"),
        CI="true",
    )
    some = run(recorded, "-k", "one or first", "--tapeway-unused=fail", "--tapeway-orphans")

    assert sorted(before) == NAMES
    assert (whole.returncode, some.returncode) == (0, 1), whole.stdout + some.stdout
    report = json.loads((recorded / "r.json").read_text())
    assert report["upstream_connections"] == 0
    used = {cassette["name"]: cassette["replayed"] for cassette in report["cassettes"]}
    assert set(used) == set(NAMES)
    assert used["shared/by-two"] == 2
    assert cassettes(recorded) == before
    refused = "orphans were not looked for: some tests were deselected"
    assert re.search(rf"4 replayed\n\d+ tokens saved\n.*\n{refused}\n2 passed", some.stdout), (
        some.stdout
    )


def test_tests_that_say_todays_date_are_counted_where_they_are_recorded(
    tmp_path: Path, upstream: str
) -> None:
    tests = """
import datetime, pytest

@pytest.mark.parametrize("n", [1, 2, 3])
def test_today(n):
    assert ask(f"{n}: today is {datetime.datetime.now():%d %b %Y}") != "error"
"""
    write(tmp_path, tests)
    recorded = run(tmp_path, "--tapeway=record", "--tapeway-report=r.txt", upstream=upstream)
    replayed = run(tmp_path)

    said = (
        '\n3 recordings contain today\'s date and will miss tomorrow; rule: normalise = ["date"]\n'
    )
    assert said in recorded.stdout, recorded.stdout
    assert "1 recording contains today's date" in (tmp_path / "r.txt").read_text()
    assert replayed.returncode == 0
    assert "today's date" not in replayed.stdout


def test_a_changed_prompt_fails_its_test_alone_and_says_what_changed(recorded: Path) -> None:
    write(recorded, TESTS.replace('ask("one")', 'ask("uno")'))
    done = run(recorded, "--tapeway-report=r.xml", "--tapeway-report=r.md")

    command = "pytest --tapeway=auto test_it.py::test_one\n"
    assert f"record with: {command}" in done.stdout
    # A miss that is alone and has no rule is in the summary too.
    assert "\n1 miss: messages[0].content: one → uno\n" in done.stdout
    assert f"\nto record what was missed: {command}" in done.stdout
    for file in ("r.xml", "r.md", ".tapeway/last.html"):
        assert "pytest --tapeway=auto test_it.py::test_one" in (recorded / file).read_text()
    assert done.returncode == 1
    assert "1 failed, 6 passed" in done.stdout
    assert "-- tapeway --" in done.stdout
    assert "nearest #0 differs at messages[0].content: one → uno\n" in done.stdout
    tree = ElementTree.parse(recorded / "r.xml")  # noqa: S314 - our own
    assert len(list(tree.iter("failure"))) == 1
    assert "messages[0].content: one → uno" in (recorded / "r.md").read_text()


@pytest.mark.slow
def test_what_a_failed_test_recorded_is_set_aside(recorded: Path, upstream: str) -> None:
    before = cassettes(recorded)
    changed = TESTS.replace('assert ask("one")', 'assert not ask("one, again")')
    write(recorded, changed + '\ndef test_new():\n    assert not ask("new")\n')

    done = run(recorded, "--tapeway=auto", upstream=upstream)

    assert done.returncode == 1
    assert "2 failed, 6 passed" in done.stdout
    file = ".tapeway/failed/test_it/test_new.json"
    assert f"set aside: what test_it.py::test_new recorded is in {file}\n" in done.stdout
    assert cassettes(recorded) == before
    aside = [
        json.loads((recorded / f".tapeway/failed/test_it/{name}.json").read_text())
        for name in ("test_one", "test_new")
    ]
    assert [len(cassette["interactions"]) for cassette in aside] == [2, 1]


@pytest.mark.slow
def test_recording_anew_keeps_what_the_tests_use_and_nothing_else(
    recorded: Path, upstream: str
) -> None:
    write(recorded, TESTS.replace('ask("one")', 'ask("uno")'))
    done = run(recorded, "--tapeway=record", upstream=upstream)

    assert done.returncode == 0, done.stdout
    (item,) = json.loads(cassettes(recorded)["test_it/test_one"])["interactions"]
    assert "uno" in json.dumps(item["request"])


TWICE = """
def test_two():
    assert ask("a") != "error"
    assert ask("b") != "error"

def test_one():
    assert ask("one") != "error"

def test_fails():
    ask("a")
    ask("b")
"""


@pytest.mark.slow
def test_unused_recordings_of_passed_tests_and_orphans_are_named(
    tmp_path: Path, upstream: str
) -> None:
    write(tmp_path, TWICE)
    assert run(tmp_path, "--tapeway=record", upstream=upstream).returncode == 0
    write(
        tmp_path,
        TWICE.replace('assert ask("b")', 'assert "x"')
        .replace('ask("one")', '"one"')
        .replace('    ask("b")\n', "    assert 0\n"),
    )
    warned = run(tmp_path)
    failed = run(tmp_path, "--tapeway-unused=fail", "--deselect=test_it.py::test_fails")
    write(tmp_path, "def test_two():\n    ask('a')\ndef test_fails():\n    pass\n")
    orphans = run(tmp_path, "--tapeway-orphans")

    assert "\nto drop what is not used: pytest --tapeway-prune\n" in warned.stdout
    named = [
        "not used: #1 POST /v1/chat/completions of test_it/test_two",
        "not used: all recordings of test_it/test_one",
    ]
    lines = [
        [line for line in finished.stdout.splitlines() if line.startswith("not used")]
        for finished in (warned, failed)
    ]
    assert lines == [named, named]
    assert [finished.returncode for finished in (warned, failed, orphans)] == [1, 1, 1]
    assert "1 failed, 2 passed" in warned.stdout
    assert "failed" not in failed.stdout
    assert "cassettes that no test names: test_it/test_one\n" in orphans.stdout
    assert "to delete them: tapeway cassette rm test_it/test_one\n" in orphans.stdout


LATE = """
threads = []

@pytest.fixture
def later():
    go = threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(), ask("too late")))
    thread.start()
    threads.append((go, thread))

def test_starts_a_thread(later):
    pass
"""
# Lets the thread go on when the test has ended.
LATE_CONFTEST = """
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    import test_it
    for go, thread in test_it.threads:
        go.set()
        thread.join()
    return (yield)
"""


def test_a_request_after_the_end_of_its_test_is_named_with_the_test(tmp_path: Path) -> None:
    write(tmp_path, LATE)
    (tmp_path / "conftest.py").write_text(LATE_CONFTEST)
    strict = run(tmp_path, "--tapeway=replay", "--tapeway-strict")

    late = "requests after their test had ended: POST /v1/chat/completions of test_it.py::test_starts_a_thread\n"
    assert strict.returncode == 1
    assert "1 passed" in strict.stdout
    assert late in strict.stdout


MISSED = """
def test_swallows():
    assert ask("anything") == "miss"

@pytest.fixture
def loud():
    yield
    ask("at the end")

def test_teardown(loud):
    pass

@pytest.fixture(scope="module")
def wide():
    return ask("wide")

def test_wide(wide):
    assert wide == "miss"
"""


def test_a_miss_fails_its_test_though_the_test_does_not_care(tmp_path: Path) -> None:
    write(tmp_path, MISSED)
    done = run(tmp_path, "--tapeway=auto", CI="true")

    assert done.returncode == 1
    assert (
        "FAILED test_it.py::test_swallows - replay miss: POST /v1/chat/completions: there is no"
        in done.stdout
    )
    assert "ERROR test_it.py::test_teardown - replay miss" in done.stdout
    assert "test_it.py::test_wide - replay miss" in done.stdout


def test_an_unknown_marker_argument_stops_the_run(tmp_path: Path) -> None:
    write(tmp_path, '@pytest.mark.tapeway(casette="x")\ndef test_x():\n    pass\n')
    done = run(tmp_path, "--tapeway=replay")

    assert done.returncode == 4
    assert (
        "takes cassette, mode, rules, faults by name, and no casette" in done.stderr + done.stdout
    )


OFF = """
def test_fixture(cassette):
    assert not cassette.active
    assert (cassette.calls, cassette.mode) == ([], None)
    assert BASE == "unset"
"""


def test_off_leaves_everything_alone_and_undecided_says_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, OFF)
    off = run(tmp_path, "--tapeway=off")
    undecided = run(tmp_path)

    assert off.returncode == 0, off.stdout
    assert undecided.returncode == 1
    assert "record some with --tapeway=record" in undecided.stdout


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--tapeway=off"], "--tapeway=off runs without one: leave the option out"),
        ([], "there are no cassettes to replay yet: record some with --tapeway=record"),
    ],
    ids=["off", "undecided"],
)
def test_a_skip_without_a_proxy_says_why_and_what_to_do(
    tmp_path: Path, given: list[str], reason: str
) -> None:
    write(tmp_path, "def test_proxy(tapeway):\n    assert tapeway\n")
    done = run(tmp_path, "-rs", *given)

    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert reason in " ".join(done.stdout.split())


MARKED = """
@pytest.mark.tapeway(cassette="{test}", mode="auto", rules={"ignore": ["body.messages[*].content"]})
@pytest.mark.parametrize("n", [1, 2, 3])
def test_alike(n, cassette, tapeway):
    assert cassette.name == "test_it/test_alike"
    outcome = ask(f"any {n}")
    assert outcome == ("recorded" if n == 1 else "replayed")
    assert [each["outcome"] for each in cassette.calls] == [outcome]
    (sent,) = cassette.requests
    assert sent["body"]["messages"] == [{"role": "user", "content": f"any {n}"}]
    assert "sk-of-the-app" not in json.dumps(sent)
    assert tapeway.mode() == "replay"
"""


@pytest.mark.slow
def test_a_marker_gives_cassette_mode_and_rules(tmp_path: Path, upstream: str) -> None:
    write(tmp_path, MARKED)
    done = run(tmp_path, "--tapeway=replay", upstream=upstream)

    assert done.returncode == 0, done.stdout
    (name,) = cassettes(tmp_path)
    assert name == "test_it/test_alike"


ADDRESSED = """
def test_address(tapeway):
    url = tapeway.url("openai") + "/chat/completions"
    assert url == BASE + "/chat/completions"
    assert ask("one") == "recorded"
    assert tapeway.url("openai", cassette="x") != BASE
"""


def test_the_address_that_the_deck_tells_is_that_of_the_test(tmp_path: Path, upstream: str) -> None:
    write(tmp_path, ADDRESSED)
    # An empty variable names no running tapeway.
    done = run(tmp_path, "--tapeway=record", upstream=upstream, TAPEWAY_ADMIN_URL="")

    assert done.returncode == 0, done.stdout
    assert [*cassettes(tmp_path)] == ["test_it/test_address"]


@pytest.mark.parametrize("dead", ["http://127.0.0.1:1", "nonsense", "http://127.0.0.1:port"])
def test_a_named_tapeway_that_does_not_answer_stops_the_run(tmp_path: Path, dead: str) -> None:
    write(tmp_path, "def test_nothing():\n    pass\n")
    done = run(tmp_path, TAPEWAY_ADMIN_URL=dead)
    off = run(tmp_path, "--tapeway=off", TAPEWAY_ADMIN_URL=dead)

    assert done.returncode == 4
    assert "--tapeway: " in done.stderr
    assert dead in done.stderr
    assert "Traceback" not in done.stderr
    assert off.returncode == 0, off.stdout


MANY = """
@pytest.mark.parametrize("n", range(COUNT))
def test_own(n, cassette):
    body = {"model": "m", "messages": [{"role": "user", "content": f"number {n}."}]}
    request = urllib.request.Request(
        BASE + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        assert response.headers["Tapeway-Cassette"] == f"test_it/test_own-{n}"
        assert f"number {n}." in response.read().decode()
"""


@pytest.mark.slow
def test_many_tests_on_four_workers_do_not_meet(tmp_path: Path, upstream: str) -> None:
    count = examples(60)
    write(tmp_path, f"COUNT = {count}\n{MANY}")
    recorded = run(tmp_path, "-n4", "--tapeway=record", upstream=upstream)
    replayed = run(tmp_path, "-n4")

    assert f"{count} passed" in recorded.stdout, recorded.stdout
    assert f"{count} passed" in replayed.stdout, replayed.stdout
    assert len(cassettes(tmp_path)) == count
