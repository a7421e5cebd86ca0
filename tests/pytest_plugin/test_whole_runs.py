"""What is said and done at the end of a run: renamed tests, pruning, stale recordings, annotations."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.pytest_plugin.inner import cassettes, run, write
from tests.support.thoroughness import step


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ThreadedStandIn() as found:
        yield found.url


TESTS = """
@pytest.mark.parametrize(("a", "b"), [(1, 2), (3, 4)])
def test_sum(a, b):
    assert ask(f"{a} and {b}") != "error"

def test_old():
    assert ask("one") != "error"

def test_other():
    assert ask("two") != "error"
"""


def record(folder: Path, tests: str, upstream: str) -> None:
    write(folder, tests)
    done = run(folder, "--tapeway=record", upstream=upstream)
    assert done.returncode == 0, done.stdout


def lines(output: str, start: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(start)]


@pytest.mark.slow
def test_a_renamed_test_is_told_which_cassette_is_its_own(tmp_path: Path, upstream: str) -> None:
    record(tmp_path, TESTS, upstream)
    renamed = TESTS.replace('("a", "b"), [(1, 2), (3, 4)]', '("b", "a"), [(2, 1), (4, 3)]')
    write(tmp_path, renamed.replace("test_old", "test_new"))

    done = run(tmp_path, "-n2")

    assert done.returncode == 1
    moves = [
        ("test_new", "test_old"),
        ("test_sum-2-1", "test_sum-1-2"),
        ("test_sum-4-3", "test_sum-3-4"),
    ]
    told = lines(done.stdout, "renamed: ")
    assert sorted(told) == [
        f"renamed: test_it/{new}: its recordings are in test_it/{old}, which no test names: "
        f"tapeway cassette mv test_it/{old} test_it/{new}"
        for new, old in moves
    ]


@pytest.mark.slow
def test_the_cassette_of_another_command_is_not_taken_for_that_of_a_renamed_test(
    tmp_path: Path, upstream: str
) -> None:
    record(tmp_path, TESTS, upstream)
    (tmp_path / "cassettes/test_it/test_old.json").rename(tmp_path / "cassettes/default.json")

    done = run(tmp_path)

    assert "there is no cassette 'test_it/test_old'" in done.stdout
    assert lines(done.stdout, "renamed: ") == []


@pytest.mark.slow
def test_only_what_no_collected_test_names_is_taken_for_renamed(
    tmp_path: Path, upstream: str
) -> None:
    record(tmp_path, TESTS, upstream)
    write(tmp_path, TESTS + "\ndef test_again():\n    ask('one')\n")
    (tmp_path / "test_more.py").write_text((tmp_path / "test_it.py").read_text())

    outputs = [
        run(tmp_path, *arguments).stdout
        for arguments in ((), ("test_it.py::test_again",), ("test_more.py",))
    ]

    assert all("there is no cassette" in output for output in outputs)
    assert [line for output in outputs for line in lines(output, "renamed: ")] == []


THREE = """
def test_three():
    for words in ("a", "b", "c"):
        assert ask(words) != "error"

@pytest.mark.tapeway(cassette="shared")
@pytest.mark.parametrize("words", ["one", "two", "three"])
def test_shared(words):
    assert ask(words) != "error"

def test_quiet():
    ask("quiet")

def test_skipped():
    ask("skipped")
"""
FEWER = (
    THREE.replace('("a", "b", "c")', '("b",)')
    .replace('["one", "two", "three"]', '["three", "one"]')
    .replace('    ask("quiet")', "    pass")
    .replace('    ask("skipped")', '    pytest.skip("not here")')
)


def sent(folder: Path) -> dict[str, list[str]]:
    """The prompts in each cassette."""
    return {
        name: [
            words
            for interaction in json.loads(text)["interactions"]
            for words in re.findall(
                r'content[^a-z]*"([a-z]+)[^a-z]*"', json.dumps(interaction["request"])
            )
        ]
        for name, text in cassettes(folder).items()
    }


def test_a_whole_good_run_prunes_what_its_tests_did_not_replay(
    tmp_path: Path, upstream: str
) -> None:
    record(tmp_path, THREE, upstream)
    write(tmp_path, FEWER)

    done = run(tmp_path, "-n2", "--tapeway-prune", "--tapeway-unused=fail")
    again = run(tmp_path, "--tapeway-unused=ignore")

    assert sorted(lines(done.stdout, "pruned: ")) == [
        "pruned: 1 of shared",
        "pruned: 2 of test_it/test_three",
    ]
    # Cassettes of which nothing was replayed are left to the user, those of skipped tests to others.
    assert lines(done.stdout, "not used: ") == ["not used: all recordings of test_it/test_quiet"]
    assert done.returncode == 1
    assert sent(tmp_path) == {
        "shared": ["one", "three"],
        "test_it/test_quiet": ["quiet"],
        "test_it/test_skipped": ["skipped"],
        "test_it/test_three": ["b"],
    }
    assert again.returncode == 0, again.stdout


FAILED = FEWER + "\ndef test_fails():\n    assert 0\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "arguments", "why"),
    [
        (FEWER, ("test_it.py",), "only some paths were collected"),
        (FAILED, (), "the run failed"),
        (FEWER, ("-n2", "-k", "three"), "some tests were deselected"),
    ][:: step(3)],
)
def test_no_other_run_prunes_or_looks_for_orphans(
    tmp_path: Path, recorded_three: Path, tests: str, arguments: tuple[str, ...], why: str
) -> None:
    before = cassettes(recorded_three)
    write(recorded_three, tests)
    done = run(recorded_three, *arguments, "--tapeway-prune", "--tapeway-orphans")

    assert done.returncode == 1
    assert f"nothing was pruned: {why}\norphans were not looked for: {why}\n" in done.stdout
    assert cassettes(recorded_three) == before


@pytest.fixture(scope="module")
def recorded_three(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Path:
    folder = tmp_path_factory.mktemp("three")
    record(folder, THREE, upstream)
    return folder


@pytest.mark.slow
def test_a_run_below_the_root_is_no_whole_one(tmp_path: Path, upstream: str) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    write(tmp_path, "")
    (tmp_path / "test_it.py").rename(folder / "test_it.py")
    with (folder / "test_it.py").open("a") as file:
        file.write("def test_one():\n    assert ask('one') != 'error'\n")
    (tmp_path / "test_above.py").write_text((folder / "test_it.py").read_text())
    assert run(tmp_path, "--tapeway=record", upstream=upstream).returncode == 0

    done = run(folder, "--tapeway-orphans")

    assert "1 passed" in done.stdout
    assert "orphans were not looked for: only some paths were collected" in done.stdout


@pytest.mark.slow
def test_a_cassette_that_cannot_be_read_and_nobody_asked_is_named_as_such(
    tmp_path: Path, upstream: str
) -> None:
    record(tmp_path, TESTS, upstream)
    (tmp_path / "cassettes/test_it/test_old.json").write_text('{"version": "1", "intera')
    write(tmp_path, TESTS.replace('ask("one")', '"one"'))

    done = run(tmp_path)

    assert done.returncode == 0
    (told,) = lines(done.stdout, "not used: ")
    assert told.startswith("not used: test_it/test_old: it cannot be read: ")
    assert "cassettes/test_it/test_old.json line 1" in told


@pytest.mark.slow
def test_a_skipped_test_keeps_its_cassette_and_none_of_what_it_recorded(
    tmp_path: Path, upstream: str
) -> None:
    record(tmp_path, TESTS, upstream)
    before = cassettes(tmp_path)
    skipped = TESTS.replace('assert ask("one")', 'pytest.skip(ask("uno"))\n    assert "one"')
    write(tmp_path, skipped)

    recorded = run(tmp_path, "--tapeway=record", upstream=upstream)
    replayed = run(tmp_path, "--tapeway-strict")

    assert "3 passed, 1 skipped" in recorded.stdout
    assert cassettes(tmp_path)["test_it/test_old"] == before["test_it/test_old"]
    assert (tmp_path / ".tapeway/failed/test_it/test_old.json").exists()
    assert "replay miss" in replayed.stdout


@pytest.mark.slow
def test_stale_recordings_warn_or_fail(tmp_path: Path, upstream: str) -> None:
    record(tmp_path, TESTS, upstream)
    file = tmp_path / "cassettes/test_it/test_old.json"
    document = json.loads(file.read_bytes())
    document["meta"]["checked_at"] = "2026-01-31"
    file.write_text(json.dumps(document))
    (tmp_path / "tapeway.toml").write_text('max_age = "30d"\n')

    warned = run(tmp_path, "--tapeway-annotations")
    failed = run(tmp_path, "--tapeway-stale=fail")

    stale = ["stale: #0 POST /v1/chat/completions of test_it/test_old, of 2026-01-31"]
    assert [lines(finished.stdout, "stale: ") for finished in (warned, failed)] == [stale, stale]
    assert [finished.returncode for finished in (warned, failed)] == [0, 1]
    assert lines(warned.stdout, "::warning file=test_it.py,line=")


@pytest.mark.slow
def test_misses_are_annotated_at_their_tests_and_savings_are_summed(
    tmp_path: Path, upstream: str
) -> None:
    record(tmp_path, TESTS, upstream)
    (tmp_path / "prices.toml").write_text(
        '[models]\n"openai/m" = { input = 1000, output = 1000 }\n'
    )
    changed = TESTS.replace('ask("one")', 'ask("uno")')
    write(tmp_path, changed)
    source = (tmp_path / "test_it.py").read_text().splitlines()
    line = source.index("def test_old():") + 1

    options = ("-n2", "--tapeway-annotations", "--tapeway-report=r.json")
    done = run(tmp_path, *options, TAPEWAY_PRICES="prices.toml")

    (error,) = lines(done.stdout, "::error")
    assert error.startswith(f"::error file=test_it.py,line={line},title=tapeway%3A not recorded::")
    assert "messages[0].content: one → uno" in error
    parts = json.loads((tmp_path / "r.json").read_bytes())["cassettes"]
    tokens = sum(part["usage"]["total_tokens"] for part in parts)
    assert lines(done.stdout, f"{tokens} tokens saved, $")
    assert sum(part["saved"]["usd"] for part in parts) == pytest.approx(tokens / 1000)


# As plugins do that run flaky tests again: only the last attempt is reported.
AGAIN = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    runtestprotocol(item, nextitem=item, log=False)
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
FLAKY = """
attempts = []

def test_flaky():
    ask("one")
    attempts.append(1)
    assert len(attempts) == 2
"""


@pytest.mark.slow
def test_a_test_that_passes_at_its_second_attempt_is_recorded(
    tmp_path: Path, upstream: str
) -> None:
    write(tmp_path, FLAKY)
    (tmp_path / "conftest.py").write_text(AGAIN)

    recorded = run(tmp_path, "--tapeway=record", upstream=upstream)
    replayed = run(tmp_path, "--tapeway-strict")

    assert "1 passed" in recorded.stdout
    assert "1 passed" in replayed.stdout
    assert replayed.returncode == 0, replayed.stdout


@pytest.mark.slow
def test_a_single_test_keeps_the_digits_that_tell_it_from_one_in_other_case(
    tmp_path: Path, upstream: str
) -> None:
    record(tmp_path, "def test_x():\n    ask('x')\n\ndef test_X():\n    ask('X')\n", upstream)

    done = run(tmp_path, "test_it.py::test_X")

    assert "1 replayed" in done.stdout
    assert done.returncode == 0


FAILING = """
def test_error():
    request = urllib.request.Request(BASE + "/chat/completions", b'{"model": "error-429"}')
    with pytest.raises(urllib.error.HTTPError, match="429"):
        urllib.request.urlopen(request)

def test_twice():
    assert [ask("one"), ask("one")] == ["recorded", "replayed"]
"""


def test_the_summary_names_what_was_not_stored_and_what_equal_calls_share(
    tmp_path: Path, upstream: str
) -> None:
    write(tmp_path, FAILING)

    done = run(tmp_path, "--tapeway=auto", upstream=upstream)

    assert done.returncode == 0, done.stdout
    assert lines(done.stdout, "not stored: ") == [
        "not stored: POST /v1/chat/completions: its status is 429: it was passed on, and not stored: "
        "mode record stores it, and so does --record-statuses 200-399,429 "
        "(cassette test_it/test_error)"
    ]
    assert lines(done.stdout, "1 recorded answer of a model") == [
        "1 recorded answer of a model was given to equal calls of the same take too: --repeats miss "
        "or mode record asks the model each time"
    ]


DATED = """
@pytest.mark.parametrize("n", [1, 2, 3])
def test_dated(n):
    assert ask(f"Today is {os.environ['DAY']}, and {n}.") == "replayed"
"""


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["one process", "workers"])
def test_a_red_run_leaves_one_report_and_names_the_cause_once(
    tmp_path: Path, upstream: str, options: tuple[str, ...]
) -> None:
    write(tmp_path, DATED.replace('== "replayed"', '!= "miss"'))
    first = run(tmp_path, "--tapeway=record", upstream=upstream, DAY="2026-11-26")
    again = run(tmp_path, *options, "--tapeway-report=r.html", DAY="2026-11-27")

    assert "last.html" not in first.stdout
    assert lines(again.stdout, "3 misses") == [
        '3 misses, one cause: a date; rule: normalise = ["date"] in tapeway.toml [rules]'
    ]
    assert lines(again.stdout, "look at it in a browser: .") == [
        "look at it in a browser: .tapeway/last.html"
    ]
    address = f"look at it in a browser: {tmp_path.as_uri()}/.tapeway/last.html#/journal/tw-"
    assert len(lines(again.stdout, address)) == 3
    pages = [tmp_path / ".tapeway/last.html", tmp_path / "r.html"]
    for page in pages:
        (data,) = re.findall(r'id="recorded">(.*?)</script>', page.read_text(encoding="utf-8"))
        recorded = json.loads(data)
        assert recorded["answers"]["summary"]["counts"]["miss"] == 3
        (cause,) = recorded["answers"]["summary"]["causes"]
        assert (cause["times"], len(cause["requests"])) == (3, 3)
        misses = [entry for entry in recorded["entries"] if entry["outcome"] == "miss"]
        assert all(f"journal/{miss['id']}" in recorded["answers"] for miss in misses)
    assert (tmp_path / ".tapeway/.gitignore").read_text() == "*\n"


def test_a_run_that_may_write_no_report_is_no_failure(tmp_path: Path, upstream: str) -> None:
    write(tmp_path, "def test_it():\n    ask('one')\n")
    (tmp_path / ".tapeway").write_text("a file")

    done = run(tmp_path, "--tapeway=record", upstream=upstream)

    assert done.returncode == 0, done.stdout
    (line,) = lines(done.stdout, "warning: ")
    assert line.startswith("warning: .tapeway/last.html cannot be written: ")


def test_a_miss_in_a_run_names_the_report_that_the_run_leaves(
    tmp_path: Path, upstream: str
) -> None:
    said = """
def test_it():
    try:
        urllib.request.urlopen(BASE + "/models")
    except urllib.error.HTTPError as error:
        print("page:", json.load(error)["tapeway"]["page"])
"""
    write(tmp_path, said)

    done = run(tmp_path, "--tapeway=replay")

    (line,) = lines(done.stdout, "page: ")
    assert line.startswith(f"page: {tmp_path.as_uri()}/.tapeway/last.html#/journal/tw-")
