"""A cassette that cannot be read or written stops the start with one line, and stays as it is."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.privileges import drop_rights
from tests.process.serving import FAILURE, USAGE, Tapeway, refused
from tests.support.thoroughness import combinations


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "cassettes"
    folder.mkdir()
    return folder


UNREADABLE = {
    "cut": ('{\n "version": "1",\n "interactions": [\n', "line 4"),
    "wrong type": ('{"version": "1", "interactions": {}}', "interactions"),
    "empty": ("", "line 1"),
    "newer": ('{"version": "2", "interactions": []}', "update tapeway"),
}


@pytest.mark.parametrize(
    ("what", "mode"), combinations([*UNREADABLE], ["replay", "record", "auto"])
)
async def test_one_that_cannot_be_read_is_named_with_line_and_reason(
    tmp_path: Path, store: Path, what: str, mode: str
) -> None:
    text, reason = UNREADABLE[what]
    file = store / "default.json"
    file.write_text(text)

    code, message = await refused(tmp_path, "--mode", mode)

    assert code == USAGE
    assert message.startswith(f"{file} ") or message.startswith(f"{file}:")
    assert reason in message
    assert "left as it is" in message
    assert file.read_text() == text


async def test_one_that_may_not_be_read_is_named(tmp_path: Path, store: Path) -> None:
    file = store / "default.json"
    file.write_text("{}")
    file.chmod(0)

    code, message = await refused(tmp_path, "--mode", "replay", limit=drop_rights)

    assert code == USAGE
    assert message.startswith(f"{file}: could not read the cassette (Permission denied)")
    assert "check the permissions" in message


@pytest.mark.parametrize("mode", ["record", "auto"])
async def test_a_folder_that_may_not_be_written_stops_recording_at_the_start(
    tmp_path: Path, store: Path, mode: str
) -> None:
    store.chmod(0o500)

    code, message = await refused(tmp_path, "--mode", mode, limit=drop_rights)

    assert code == FAILURE
    assert str(store) in message
    assert "Permission denied" in message
    assert "check the permissions" in message
    assert list(store.iterdir()) == []


@pytest.mark.parametrize("mode", [0o500, 0], ids=["may not be written", "may not be entered"])
async def test_a_folder_that_cannot_be_made_stops_recording_at_the_start(
    tmp_path: Path, mode: int
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=mode)
    folder = closed / "cassettes"

    code, message = await refused(
        tmp_path, "--store", str(folder), "--mode", "record", limit=drop_rights
    )

    # What may not be entered cannot be read either.
    assert code == (FAILURE if mode else USAGE)
    assert message.startswith(f"{folder}")
    assert "Permission denied" in message
    assert "check the permissions" in message


async def test_a_folder_whose_name_is_too_long_is_named(tmp_path: Path) -> None:
    code, message = await refused(tmp_path, "--store", "x" * 300)

    assert code == FAILURE
    assert "File name too long" in message


@pytest.mark.slow
async def test_a_working_folder_that_is_gone_is_no_matter_where_it_is_not_needed(
    tmp_path: Path,
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def go_there() -> None:
        os.chdir(gone)
        gone.rmdir()

    async with Tapeway(tmp_path, before=go_there) as tapeway:
        assert (await tapeway.status())["store"]["url"] == f"file:{tapeway.store}"
    gone.mkdir()
    code, message = await refused(tmp_path, "--store", "here", before=go_there)

    assert code == FAILURE
    assert message.startswith("here: could not make the folder")


async def test_a_store_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cassettes").write_text("x")

    code, message = await refused(tmp_path)

    assert code == USAGE
    assert message == f"{tmp_path}/cassettes is not a folder: give --store another one"


async def test_replay_needs_no_right_to_write_and_recording_asks_nobody_without_it(
    tmp_path: Path, store: Path
) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--mode")
        async with Tapeway(tmp_path, *options, "auto") as tapeway:
            await tapeway.ask("/one")
        store.chmod(0o500)
        before = {path.name: path.read_bytes() for path in store.iterdir()}
        async with Tapeway(tmp_path, *options, "replay", limit=drop_rights) as tapeway:
            replayed = await tapeway.ask("/one")
            code, _ = await tapeway.admin("PUT", "/api/v1/mode", {"mode": "record"})
            assert code == 200
            failed = await tapeway.ask("/two")

    assert replayed.body == upstream.only_answer("/one")
    assert failed.status == 503
    error = json.loads(failed.body)["error"]
    assert error["code"] == "recording_failed"
    assert "Permission denied" in error["message"]
    # What cannot be kept is not paid for.
    assert upstream.asks == {"/one": 1}
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before


async def test_one_that_another_process_records_into_is_locked_until_that_one_is_gone(
    tmp_path: Path,
) -> None:
    store = tmp_path / "shared"
    folders = [tmp_path / name for name in ("first", "second", "third", "fourth")]
    for folder in folders:
        folder.mkdir()
    async with Upstream() as upstream:
        options = ("--store", str(store), "--upstream", upstream.url)
        first = await Tapeway(folders[0], *options).start()
        try:
            kept = (await first.ask("/kept")).body
            for mode in ("record", "auto"):
                code, message = await refused(folders[1], *options, "--mode", mode)
                assert code == FAILURE
                assert f"process {first.pid} records into this cassette" in message
                assert "replay only" in message
            async with Tapeway(folders[2], *options, "--mode", "replay") as reader:
                assert (await reader.ask("/kept")).body == kept
            first.signal(signal.SIGKILL)
            assert await first.ended() == -signal.SIGKILL
        finally:
            await first.kill()
        async with Tapeway(folders[3], *options) as heir:
            assert (await heir.ask("/kept")).body == kept

    assert upstream.asks == {"/kept": 1}


async def test_a_second_writer_of_another_cassette_gets_on_with_the_first(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        (tmp_path / "second").mkdir()
        options = ("--store", str(tmp_path / "shared"), "--upstream", upstream.url)
        async with (
            Tapeway(tmp_path, *options, "--cassette", "one"),
            Tapeway(tmp_path / "second", *options, "--cassette", "two") as second,
        ):
            locked = await second.ask("/@one/x")
            assert locked.status == 503
            assert json.loads(locked.body)["error"]["code"] == "cassette_locked"
            assert (await second.ask("/x")).outcome == b"recorded"

    assert upstream.asks == {"/x": 1}


@pytest.mark.slow
async def test_the_start_says_that_the_cassette_to_replay_does_not_exist(tmp_path: Path) -> None:
    shared = ("--store", f"sqlite:{tmp_path}/cassettes.db")
    async with Upstream() as upstream:
        recording = Tapeway(tmp_path, *shared, "--upstream", upstream.url, "--cassette", "smoke")
        async with recording as tapeway:
            await tapeway.ask("/one")
    for name, said in [
        (
            "smoek",
            f"no cassette 'smoek' in sqlite:{tmp_path}/cassettes.db: its requests miss; is smoke",
        ),
        ("smoke", ""),
    ]:
        replaying = Tapeway(tmp_path, *shared, "--mode", "replay", "--cassette", name)
        async with replaying as tapeway:
            assert said in tapeway.stderr
            assert bool(said) == ("there is no cassette" in tapeway.stderr)


async def test_passthrough_needs_no_cassette_that_can_be_read(tmp_path: Path, store: Path) -> None:
    file = store / "default.json"
    file.write_text("{")
    async with Upstream() as upstream:
        passing = Tapeway(tmp_path, "--mode", "passthrough", "--upstream", upstream.url)
        async with passing as tapeway:
            assert "default.json line 1" in tapeway.stderr
            assert "its requests pass through all the same" in tapeway.stderr
            found = [(await tapeway.ask("/one")).status for _ in range(2)]
            # Once at the start, and once for all requests.
            assert tapeway.stderr.count("pass through all the same") == 2
            await tapeway.admin("PUT", "/api/v1/mode", {"mode": "replay"})
            found.append((await tapeway.ask("/one")).status)
            await tapeway.admin("PUT", "/api/v1/mode", {"mode": "passthrough"})
            found.append((await tapeway.ask("/one")).status)
            assert found == [200, 200, 500, 200]
            await upstream.was_asked("/one", 3)
    assert file.read_text() == "{"
