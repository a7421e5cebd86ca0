"""Large bodies in a real folder: what happens to their files, and what is left behind."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.serving import Tapeway
from tests.process.streamed_bodies import MIB, digest, get, giant, pieces
from tests.support.socket_upstream import Peer

SIZE = 3 * MIB


def assets(store: Path) -> list[str]:
    return sorted(path.name for path in store.glob("*.assets/*"))


async def recorded(tmp_path: Path, *options: str) -> Path:
    """The file of a large answer that was recorded for `/big`."""
    async with giant(SIZE) as url, Tapeway(tmp_path, "--upstream", url, *options) as tapeway:
        assert (await get(tapeway.proxy, "/big")).digest == digest(SIZE)
    [name] = assets(tmp_path / "cassettes")
    assert name == f"sha256-{digest(SIZE)}"
    return tmp_path / "cassettes" / "default.assets" / name


async def test_a_file_that_vanished_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    file = await recorded(tmp_path)
    async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
        await get(tapeway.proxy, "/none")
        file.unlink()
        answer = await tapeway.ask("/big")

        assert answer.status == 500
        assert json.loads(answer.body)["error"]["code"] == "cassette_corrupt"
        assert file.name in json.loads(answer.body)["message"]
        # And nothing but that answer suffers.
        assert (await tapeway.ask("/none")).outcome == b"miss"


@pytest.mark.parametrize("at", [0, SIZE // 2, SIZE - 1])
async def test_a_file_that_was_changed_is_never_given_whole(tmp_path: Path, at: int) -> None:
    file = await recorded(tmp_path)
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"\xff")
    async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
        seen = await get(tapeway.proxy, "/big")

        assert not seen.whole
        assert seen.size < SIZE


async def test_a_body_and_its_recording_survive_a_kill_right_after_the_answer(
    tmp_path: Path,
) -> None:
    async with giant(SIZE, "chunked") as url, Tapeway(tmp_path, "--upstream", url) as tapeway:
        await get(tapeway.proxy, "/big")
        await tapeway.kill()

    async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
        assert (await get(tapeway.proxy, "/big")).digest == digest(SIZE)


async def test_nothing_is_left_when_it_is_killed_in_the_middle(tmp_path: Path) -> None:
    half = b"".join(pieces(SIZE // 2))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE
    hold = asyncio.Event()
    async with (
        Peer(head + half, hold) as peer,
        Tapeway(tmp_path, "--upstream", peer.url) as tapeway,
        asyncio.TaskGroup() as tasks,
    ):
        asking = tasks.create_task(get(tapeway.proxy, "/big"))
        await tapeway.until(lambda: _nameless(tapeway.pid), "the body was half in its file")
        await tapeway.kill()

    assert not asking.result().whole
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert set(left) <= {"stderr", ".default.lock", ".gitignore"}


def _nameless(pid: int) -> bool:
    """Whether a process has a file open that has no name."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if path.readlink().name.endswith("(deleted)"):
                return True
    return False
