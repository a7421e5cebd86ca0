"""Bodies of any size cost no memory: real process, real sockets, measured."""

from pathlib import Path

import pytest

from tests.process.serving import Tapeway
from tests.process.streamed_bodies import MIB, Framing, Memory, digest, get, giant, post
from tests.support.reuse import reuse_all
from tests.support.thoroughness import runs_everything, step

MOST = 64 * MIB
SIZE = (1024 if runs_everything() else 96) * MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "framing", "delivery"),
    [
        (SIZE, "chunked", "buffer"),
        (SIZE, "length", "buffer"),
        (SIZE, "chunked", "stream"),
        (SIZE, "length", "stream"),
    ][:: step(4)],
)
async def test_an_answer_of_any_size_is_recorded_and_replayed(
    tmp_path: Path, size: int, framing: Framing, delivery: str
) -> None:
    options = ("--max-body", "2GiB", "--delivery", delivery)
    expected = digest(size)
    async with giant(size, framing) as url:
        async with Tapeway(tmp_path, "--mode", "record", "--upstream", url, *options) as tapeway:
            memory = Memory(tapeway.pid)
            live = await get(tapeway.proxy, "/big")
            recording = memory.growth
        assert b"Tapeway-Outcome: recorded" in live.head
        assert (live.size, live.digest, live.whole) == (size, expected, True)

    async with Tapeway(tmp_path, "--mode", "replay", *options) as tapeway:
        memory = Memory(tapeway.pid)
        replayed = await get(tapeway.proxy, "/big")
        replaying = memory.growth
    assert b"Tapeway-Outcome: replayed" in replayed.head
    assert (replayed.size, replayed.digest, replayed.whole) == (size, expected, True)
    assert sum(replayed.chunks) == (size if framing == "chunked" else 0)
    if framing == "chunked":
        assert set(replayed.chunks) == {64 * 1024}
    assert recording < MOST
    assert replaying < MOST


@pytest.mark.slow
@pytest.mark.parametrize("size", [SIZE])
async def test_an_upload_of_any_size_is_forwarded_recorded_and_found_again(
    tmp_path: Path, size: int
) -> None:
    kind = b"application/octet-stream"
    reuse_all(tmp_path)
    async with giant(100) as url:
        options = ("--max-body", "2GiB", "--upstream", url)
        async with Tapeway(tmp_path, "--mode", "auto", *options) as tapeway:
            memory = Memory(tapeway.pid)
            live = await post(tapeway.proxy, "/files", size, kind)
            recording = memory.growth
            memory = Memory(tapeway.pid)
            replayed = await post(tapeway.proxy, "/files", size, kind)
            replaying = memory.growth

    assert b"X-Got: %d %b" % (size, digest(size).encode()) in live.head
    assert b"Tapeway-Outcome: recorded" in live.head
    assert b"Tapeway-Outcome: replayed" in replayed.head
    assert recording < MOST
    assert replaying < MOST
