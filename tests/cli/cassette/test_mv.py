"""`tapeway cassette mv`: another name, in a folder by a rename that version control follows."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tapeway.formats.cassette_file import YAML
from tapeway.stores.file.store import FileStore
from tests.cli.full_cassette import NAME, everything
from tests.cli.invocation import run, written
from tests.stores.recordings import HEAD, record, recording
from tests.support.exchanges import interaction


def test_the_file_is_renamed_as_it_is_so_that_git_follows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written("suite/old", interaction())
    before, inode = file.read_bytes(), file.stat().st_ino
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=m")
    for command in (("init", "-q"), ("add", "cassettes"), ("commit", "-qm", "one")):
        subprocess.run([*git, *command], check=True)

    code, out, err = run(capsys, "mv", "suite/old", "other/new")

    assert (code, out, err) == (0, "suite/old is now other/new\n", "")
    renamed = Path("cassettes/other/new.json")
    assert (renamed.read_bytes(), renamed.stat().st_ino) == (before, inode)
    assert not file.exists()
    assert "R  cassettes/suite/old.json -> cassettes/other/new.json" in _status()
    subprocess.run([*git, "commit", "-qm", "two"], check=True)
    log = ["git", "log", "--follow", "--format=%s", "cassettes/other/new.json"]
    followed = subprocess.run(log, capture_output=True, text=True, check=True).stdout
    assert followed.splitlines() == ["two", "one"]


def _status() -> list[str]:
    status = ["git", "status", "--porcelain", "-M100%", "--untracked-files=all", "cassettes"]
    return subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()


def test_git_s_index_gets_the_new_name_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asyncio.run(everything(Path("cassettes")))
    (body,) = [path.name for path in Path(f"cassettes/{NAME}.assets").iterdir()]
    written("old", interaction())
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "cassettes"], check=True)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    subprocess.run(git, check=True)
    Path("cassettes/old.json").write_text(Path("cassettes/old.json").read_text() + "\n")
    written("untracked", interaction())

    for old, new in ((NAME, "all"), ("old", "suite/new"), ("untracked", "still")):
        assert run(capsys, "mv", old, new)[0] == 0

    assert [line for line in _status() if ".lock" not in line] == [
        f"R  cassettes/{NAME}.assets/{body} -> cassettes/all.assets/{body}",
        f"R  cassettes/{NAME}.json -> cassettes/all.json",
        "RM cassettes/old.json -> cassettes/suite/new.json",
        "?? cassettes/still.json",
    ]


def test_without_git_the_file_is_renamed_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written("old", interaction())
    monkeypatch.setenv("PATH", "")

    assert run(capsys, "mv", "old", "new")[::2] == (0, "")
    assert Path("cassettes/new.json").exists()


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_a_file_keeps_its_format(capsys: pytest.CaptureFixture[str], ending: str) -> None:
    asyncio.run(_recorded(FileStore(Path("cassettes"), YAML)))
    Path("cassettes/old.yaml").rename(f"cassettes/old.{ending}")

    assert run(capsys, "mv", "old", "new")[0] == 0
    assert [path.name for path in Path("cassettes").glob("[!.]*")] == [f"new.{ending}"]
    refused = run(capsys, "mv", f"cassettes/new.{ending}", "cassettes/newer.json")
    assert refused[0] == 2
    assert "keeps its format; `tapeway cassette convert` changes it" in refused[2]
    assert run(capsys, "show", "new")[0] == 0


async def _recorded(store: FileStore) -> None:
    await store.open()
    await record(store, 0, 1, name="old")
    await store.close()


def test_what_is_only_in_the_journal_comes_too(capsys: pytest.CaptureFixture[str]) -> None:
    async def crashed() -> None:
        store = FileStore(Path("cassettes"))
        await store.open()
        await store.append("old", HEAD, recording(0, body=b"x" * 100_000))
        await store.close(within_s=0)

    asyncio.run(crashed())
    assert not Path("cassettes/old.json").exists()

    assert run(capsys, "mv", "old", "new")[0] == 0
    assert run(capsys, "ls")[1].splitlines()[1].split()[:2] == ["new", "1"]


def test_large_bodies_come_too(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(everything(Path("cassettes")))
    bodies = {path.name for path in Path(f"cassettes/{NAME}.assets").iterdir()}
    assert bodies

    assert run(capsys, "mv", NAME, "elsewhere/new")[0] == 0

    assert {path.name for path in Path("cassettes/elsewhere/new.assets").iterdir()} == bodies
    assert not Path(f"cassettes/{NAME}.assets").exists()
    assert run(capsys, "verify", "elsewhere/new")[0] == 0


def test_a_rename_that_was_broken_off_is_finished_by_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asyncio.run(everything(Path("cassettes")))
    # As a loss of power leaves it: the bodies have moved, the file has not.
    Path(f"cassettes/{NAME}.assets").rename("cassettes/new.assets")

    assert run(capsys, "mv", NAME, "new")[::2] == (0, "")
    assert run(capsys, "verify", "new")[0] == 0


def test_no_cassette_is_replaced_and_none_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = written("one", interaction()), written("two", interaction(target="/v1/b"))
    before = one.read_bytes(), two.read_bytes()

    code, _, err = run(capsys, "mv", "one", "two")
    assert code == 2
    assert "cassettes/two.json: there is a cassette of this name already" in err
    code, _, err = run(capsys, "mv", "on", "three")
    assert code == 2
    assert "there is no cassette on in file:cassettes; is one" in err
    code, _, err = run(capsys, "mv", "one", "one")
    assert (code, err) == (2, "tapeway: one exists already: give another name\n")
    code, _, err = run(capsys, "mv", "one", "../three")
    assert code == 2
    assert (one.read_bytes(), two.read_bytes()) == before


async def test_a_cassette_that_is_recorded_to_stays(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("old", interaction())
    store = FileStore(Path("cassettes"))
    await store.open()
    await store.append("old", HEAD, recording(1))

    code, _, err = await asyncio.to_thread(run, capsys, "mv", "old", "new")
    await store.close()

    assert code == 2
    assert "records into this cassette" in err
    assert file.exists()
