"""`tapeway cassette scan --history`: every version that git has."""

import json
from pathlib import Path

import pytest

from tapeway.stores.file.store import FileStore
from tests.cli.comparison.test_revisions import git
from tests.cli.invocation import KEY, cassette_text, findings, run
from tests.stores.file.test_binaries import picture
from tests.stores.large_bodies import large
from tests.stores.recordings import HEAD

LEAK = "interactions[1].response.text: openai-key, begins with 'sk-p'"
FILE = Path("cassettes/suite/x.json")


@pytest.fixture(autouse=True)
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A repository with a cassette that is clean."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    git("init", "-q", "-b", "main")
    FILE.parent.mkdir(parents=True)
    _committed(cassette_text("hello", "you"))


def _committed(text: bytes | None, file: Path = FILE) -> str:
    """The commit of a file with this text, or without the file."""
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text)
    git("add", "-A")
    git("commit", "-qm", "next")
    return git("rev-parse", "HEAD").strip()


def test_a_secret_that_was_taken_out_is_still_found_with_its_commit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leaked = _committed(cassette_text("hello", f"key {KEY}"))
    _committed(cassette_text("hello", "no key"))

    assert run(capsys, "scan") == (0, "1 cassette, 2 interactions: no secret\n", "")
    assert run(capsys, "scan", "--history") == (
        1,
        f"{leaked[:12]}: suite/x.json: {LEAK}\n3 cassettes, 6 interactions: 1 secret found\n",
        "",
    )


@pytest.mark.parametrize(
    "named", [["cassettes"], [str(FILE)], ["suite/x"], ["cassettes/suite"], []]
)
def test_a_cassette_that_was_removed_is_found_however_it_is_named(
    capsys: pytest.CaptureFixture[str], named: list[str]
) -> None:
    leaked = _committed(cassette_text("hello", f"key {KEY}"))
    _committed(None)
    FILE.parent.mkdir(exist_ok=True)

    code, out, err = findings(capsys, "scan", "--history", *named)

    assert (code, err) == (1, "")
    assert out.startswith(f"{leaked[:12]}: ")
    assert out.endswith(f"x.json: {LEAK}\n")
    assert KEY not in out


def test_other_branches_and_what_only_a_merge_has_are_gone_through(
    capsys: pytest.CaptureFixture[str],
) -> None:
    git("checkout", "-qb", "other")
    on_branch = _committed(cassette_text("other", f"key {KEY}"))
    git("checkout", "-q", "main")
    _committed(cassette_text("main", "clean"))
    git("merge", "-q", "-s", "ours", "--no-commit", "other")
    merged = _committed(cassette_text("merged", f"key {KEY}"))

    code, out, _ = findings(capsys, "scan", "--history", "--format", "json")
    assert code == 1
    whole = json.loads(run(capsys, "scan", "--history", "--format", "json")[1])

    assert [secret["commit"] for secret in whole] == [on_branch, merged]
    assert {secret["interaction"] for secret in whole} == {1}
    assert {secret["file"] for secret in whole} == {"suite/x.json"}
    assert KEY not in out


def test_a_version_with_conflict_markers_is_searched_as_a_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = cassette_text("hello", f"key {KEY}").replace(b'      "index": 1', b"<<<<<<< ours\n")
    broken = _committed(text)

    code, out, err = findings(capsys, "scan", "--history")

    assert code == 1
    assert out == f"{broken[:12]}: suite/x.json: openai-key, begins with 'sk-p'\n"
    assert f"{broken[:12]}:suite/x.json: git left conflict markers here" in err
    assert err.endswith("its text was searched as it is\n")


async def test_large_bodies_of_a_version_are_read_from_git(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = FileStore(Path("cassettes"))
    await store.open()
    await store.append("big", HEAD, large(0, await store.keep("big", [b"key ", KEY.encode()])))
    await store.close()
    leaked = _committed(Path("cassettes/big.json").read_bytes(), Path("cassettes/big.json"))
    git("rm", "-rq", "cassettes/big.json", "cassettes/big.assets")
    git("commit", "-qm", "gone")

    code, out, err = findings(capsys, "scan", "--history")

    assert (code, err) == (1, "")
    place = "interactions[0].response.body_file: openai-key, begins with 'sk-p'"
    assert out == f"{leaked[:12]}: big.json: {place}\n"


async def test_binaries_of_a_version_are_read_from_git(
    capsys: pytest.CaptureFixture[str],
) -> None:
    secret = b"\xff" + KEY.encode() + b" " + bytes(40_000)
    store = FileStore(Path("cassettes"))
    await store.open()
    await store.append("picture", HEAD, picture(0, body=secret))
    await store.close()
    assert list(Path("cassettes/picture.assets").iterdir())
    file = Path("cassettes/picture.json")
    leaked = _committed(file.read_bytes(), file)
    _committed(None, file)

    code, out, err = findings(capsys, "scan", "--history")

    assert (code, err) == (1, "")
    assert out.startswith(
        f"{leaked[:12]}: picture.json: interactions[0].response.body_b64: openai-"
    )


def test_files_that_are_no_cassettes_are_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    _committed(json.dumps({"name": KEY}).encode(), Path("cassettes/package.json"))

    assert run(capsys, "scan", "--history")[0] == 0


@pytest.mark.parametrize("named", ["sqlite:a.db#x", "https://tapeway.example#x"])
def test_what_is_in_no_folder_is_refused(capsys: pytest.CaptureFixture[str], named: str) -> None:
    code, _, err = run(capsys, "scan", "--history", named)

    assert code == 2
    assert "only the cassettes of a folder have a history in git" in err


def test_outside_a_repository_git_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))

    code, _, err = run(capsys, "scan", "--history")

    assert code == 2
    assert "not a git repository" in err


def test_what_one_interaction_teaches_is_found_in_those_before_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    taught = "Zq7TnV4mXc9LpR2sWk8HdY3b"
    _committed(cassette_text(f"use {taught} now", f"HF_TOKEN={taught}"))

    code, out, _ = findings(capsys, "scan", "--history")

    assert code == 1
    assert {line.split(": ")[2] for line in out.splitlines()} == {
        "interactions[0].response.text",
        "interactions[1].response.text",
    }
