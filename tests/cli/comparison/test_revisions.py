"""`tapeway cassette diff` with git: a revision, and as the driver of `git diff`."""

import asyncio
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.core.json_text import dump
from tapeway.core.model.interaction import Interaction
from tapeway.stores.file.store import FileStore
from tests.cli.full_cassette import NAME, everything
from tests.cli.invocation import run, written
from tests.conversations.recorded_calls import chat, user
from tests.stores.recordings import HEAD, recording
from tests.support import fork_server


def git(*arguments: str) -> str:
    """What git prints."""
    settings = ("user.name=x", "user.email=x@example.com", "core.pager=cat")
    options = [part for setting in settings for part in ("-c", setting)]
    done = subprocess.run(
        ["git", *options, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A repository with two committed cassettes, the surroundings of which do not count."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    git("init", "-q")
    written("suite/a", chat(0, [user("hi")], "one"))
    written("b", chat(0, [user("hi")], "same"))
    git("add", "-A")
    git("commit", "-qm", "first")


def test_a_working_tree_that_is_the_revision_has_no_differences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "diff", "HEAD") == (0, "2 cassettes as in HEAD\n", "")


def test_each_changed_cassette_is_compared_with_the_revision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("suite/a", chat(0, [user("hi")], "two"))
    written("new", chat(0, [user("ho")], "x"))
    Path("cassettes/b.json").unlink()

    code, out, err = run(capsys, "diff", "HEAD")

    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "only in HEAD:b: #0 POST /v1/chat/completions  200  hi → same",
        "0 equal, 0 different, 1 only in HEAD:b, 0 only in b",
        "only in new: #0 POST /v1/chat/completions  200  ho → x",
        "0 equal, 0 different, 0 only in HEAD:new, 1 only in new",
        "#0 POST /v1/chat/completions  200  hi → one  and  #0",
        "  response.body.choices[0].message.content",
        '    HEAD:suite/a: "one"',
        '    suite/a: "two"',
        "0 equal, 1 different, 0 only in HEAD:suite/a, 0 only in suite/a",
        "0 cassettes as in HEAD",
    ]
    git("add", "-A")
    git("commit", "-qm", "second")
    assert run(capsys, "diff", "HEAD")[0] == 0
    assert run(capsys, "diff", "HEAD~1")[0] == 1


def with_id(number: int) -> Interaction:
    """A recording of the same text, taken another time."""
    item = chat(0, [user("hi")], "one")
    body = dump({"id": f"chatcmpl-{number:029d}", **json.loads(item.response.body)})
    return replace(item, response=replace(item.response, body=body))


@pytest.fixture
def recorded_anew() -> None:
    """A cassette whose file differs from the revision in ids alone."""
    written("suite/a", with_id(1))
    git("commit", "-qam", "with an id")
    written("suite/a", with_id(2))
    assert git("diff", "--name-only", "HEAD") == "cassettes/suite/a.json\n"


@pytest.mark.usefixtures("recorded_anew")
def test_cassettes_that_are_equal_but_for_ids_and_times_are_counted_and_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "diff", "HEAD") == (
        *(0, "1 cassette as in HEAD, 1 equal but for ids and times\n", ""),
    )
    assert run(capsys, "diff", "HEAD", "--format", "markdown") == (0, "", "")


@pytest.mark.parametrize("staged", [True, False])
def test_a_moved_cassette_is_compared_with_what_it_was_under_its_old_name(
    capsys: pytest.CaptureFixture[str], *, staged: bool
) -> None:
    Path("cassettes/suite/a.json").unlink()
    written("other/name", chat(0, [user("hi")], "two"))
    written("new", chat(0, [user("ho")], "x"))
    if staged:
        git("add", "-A")

    code, out, err = run(capsys, "diff", "HEAD")

    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "only in new: #0 POST /v1/chat/completions  200  ho → x",
        "0 equal, 0 different, 0 only in HEAD:new, 1 only in new",
        "#0 POST /v1/chat/completions  200  hi → one  and  #0",
        "  response.body.choices[0].message.content",
        '    HEAD:suite/a: "one"',
        '    other/name: "two"',
        "0 equal, 1 different, 0 only in HEAD:suite/a, 0 only in other/name",
        "1 cassette as in HEAD",
    ]


def test_a_cassette_that_was_only_moved_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cassettes/b.json").rename("cassettes/c.json")

    assert run(capsys, "diff", "HEAD") == (
        0,
        "1 equal, 0 different, 0 only in HEAD:b, 0 only in c\n1 cassette as in HEAD\n",
        "",
    )


def test_programs_and_pull_requests_get_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    written("suite/a", chat(0, [user("hi")], "two"))

    (found,) = json.loads(run(capsys, "diff", "HEAD", "--format", "json")[1])
    assert (found["cassette"], found["equal"], len(found["different"])) == ("suite/a", 0, 1)
    markdown = run(capsys, "diff", "HEAD", "--format", "markdown")[1]
    assert markdown.startswith("### `HEAD:suite/a` → `suite/a`\n")
    assert '- "one"\n+ "two"\n' in markdown


def test_only_numbers_and_times_are_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("cassettes/suite/a.json")
    document = json.loads(file.read_text())
    document["interactions"][0]["latency_ms"] = 99.0
    document["meta"]["checked_at"] = "2026-11-22"
    file.write_text(json.dumps(document))

    assert run(capsys, "diff", "HEAD") == (0, "2 cassettes as in HEAD\n", "")


async def test_what_is_still_in_the_journal_is_compared_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = FileStore(Path("cassettes"))
    await store.open()
    await store.append("b", HEAD, recording(1))
    try:
        code, out, _ = await asyncio.to_thread(run, capsys, "diff", "HEAD")
        assert (code, "only in b: #1" in out) == (1, True)
    finally:
        await store.close()


def test_large_bodies_of_a_revision_are_compared_by_their_digests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = asyncio.run(everything())
    git("add", "-A")
    git("commit", "-qm", "large")
    document = json.loads(file.read_text())
    del document["interactions"][-1]
    file.write_text(json.dumps(document))

    code, out, err = run(capsys, "diff", "HEAD")

    assert (code, err) == (1, "")
    assert f"6 equal, 0 different, 1 only in HEAD:{NAME}, 0 only in {NAME}" in out

    # Nothing refers to the large body any more: it is in the revision alone.
    del document["interactions"][1]
    file.write_text(json.dumps(document))
    shutil.rmtree(file.with_suffix(".assets"))
    code, out, err = run(capsys, "diff", "HEAD")
    assert (code, err, "sha256" in out) == (1, "", True)


def test_a_cassette_that_cannot_be_read_is_named_and_the_others_are_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("cassettes/b.json").write_text("<<<<<<< ours\n")
    written("suite/a", chat(0, [user("hi")], "two"))

    code, out, err = run(capsys, "diff", "HEAD")

    assert (code, '"two"' in out) == (2, True)
    assert err.startswith("tapeway: b: cassettes/b.json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nix",), "git knows no revision nix: a single argument is one; give two cassettes"),
        (("b",), "git knows no revision b: a single argument is one; give two cassettes"),
        (("HEAD", "--store", "sqlite:x.db"), "there is no store sqlite:x.db"),
        (("HEAD", "--store", "memory:"), "git knows no revisions of memory:"),
        ((), "give two cassettes, or a revision of git."),
        (("a", "b", "c"), "give two cassettes, or a revision of git."),
    ],
)
def test_what_is_no_revision_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = run(capsys, "diff", *arguments)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"tapeway: {said}")


@pytest.fixture
def driver() -> None:
    """git's driver for cassettes, as the page on cassettes sets it up."""
    Path(".gitattributes").write_text("cassettes/**/*.json diff=tapeway\n")
    git("config", "diff.tapeway.command", f"{fork_server.program()} cassette diff --git-driver")
    git("add", ".gitattributes")


@pytest.mark.usefixtures("driver")
def test_git_diff_shows_what_changed() -> None:
    written("suite/a", chat(0, [user("hi")], "two"))
    Path("cassettes/b.json").unlink()

    shown = git("diff", "HEAD", "--", "cassettes").splitlines()

    assert shown == [
        "tapeway cassette diff cassettes/b.json",
        "only in a/cassettes/b.json: #0 POST /v1/chat/completions  200  hi → same",
        "0 equal, 0 different, 1 only in a/cassettes/b.json, 0 only in b/cassettes/b.json",
        "tapeway cassette diff cassettes/suite/a.json",
        "#0 POST /v1/chat/completions  200  hi → one  and  #0",
        "  response.body.choices[0].message.content",
        '    a/cassettes/suite/a.json: "one"',
        '    b/cassettes/suite/a.json: "two"',
        "0 equal, 1 different, 0 only in a/cassettes/suite/a.json, "
        "0 only in b/cassettes/suite/a.json",
    ]


@pytest.mark.usefixtures("driver", "recorded_anew")
def test_git_diff_is_silent_about_a_cassette_without_a_difference() -> None:
    assert git("diff", "HEAD", "--", "cassettes") == ""


@pytest.mark.usefixtures("driver")
def test_git_diff_goes_on_after_a_file_that_is_no_cassette() -> None:
    Path("cassettes/b.json").write_text("{")
    written("suite/a", chat(0, [user("hi")], "two"))

    shown = git("diff", "--", "cassettes")

    assert "cassettes/b.json: " in shown
    assert '"two"' in shown


@pytest.fixture
def textconv() -> None:
    """What git compares in place of a cassette's lines, as the page on cassettes sets it up."""
    Path(".gitattributes").write_text("cassettes/**/*.json diff=tapeway\n")
    program = fork_server.program()
    git("config", "diff.tapeway.textconv", f"{program} cassette show --textconv")
    git("add", ".gitattributes")


@pytest.mark.usefixtures("textconv")
def test_git_log_shows_the_lines_of_what_is_said_and_no_identifiers() -> None:
    asked = [user("first line\nsecond line")]
    written("suite/a", chat(0, asked, "one"), chat(1, [user("hi")], "same"))
    git("commit", "-qam", "more")
    asked = [user("first line\nanother line")]
    written(
        "suite/a", chat(0, [user("new")], "x"), chat(1, asked, "two"), chat(2, [user("hi")], "same")
    )
    git("commit", "-qam", "changed")

    shown = git("log", "-p", "-1", "--format=%s", "-U0", "--", "cassettes").splitlines()

    changed = [line for line in shown if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert "-        second line" in changed
    assert "+        another line" in changed
    assert not any(name in "\n".join(changed) for name in ("match_key", "created", "chatcmpl"))
    assert len(changed) < 30


@pytest.mark.usefixtures("textconv")
def test_git_log_goes_on_after_a_file_that_is_no_cassette() -> None:
    Path("cassettes/b.json").write_text("{\n")
    written("suite/a", chat(0, [user("hi")], "two"))
    git("commit", "-qam", "broken")

    shown = git("log", "-p", "--format=%s", "--", "cassettes")

    assert "\n+{\n" in shown
    assert "content: two\n" in shown
