"""What was taken in can be read while the rest is still to come, at the reader's pace."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.body_files import read_body
from tapeway.core.model.messages import LARGE_BODY, ChunkTimes, Response, ResponseHead
from tapeway.engine.response_buffer import ResponseBuffer, ResponseReader
from tapeway.errors import StoreError
from tests.support.fakes.broker import until

HEAD = ResponseHead(200, framing="chunked")


def tape(*pieces: bytes, framing: str = "chunked") -> ResponseBuffer:
    made = ResponseBuffer(ResponseHead(200, framing=framing))  # type: ignore[arg-type]
    for at, piece in enumerate(pieces):
        made.add([piece], float(at))
    return made


def test_a_body_that_nobody_cut_becomes_one_piece_that_came_with_its_last() -> None:
    whole, cut = tape(b"one", b"two", framing="length"), tape(b"one", b"two")

    assert whole.finish(5.0) == Response(whole.head, b"onetwo", 1.0, latency_ms=5.0)
    assert cut.finish(5.0) == Response.of_chunks(
        HEAD, [(b"one", 0.0), (b"two", 1.0)], latency_ms=5.0
    )


def test_a_body_in_one_chunk_has_only_its_time() -> None:
    assert tape(b"", b"one").finish(5.0) == Response(HEAD, b"one", 1.0, latency_ms=5.0)


def test_the_part_that_has_come_does_not_grow() -> None:
    made = tape(b"one", b"two")
    part = made.part()
    made.add([b"three", b"four"], 2.0)

    assert part is not None
    assert part.pieces() == [b"one", b"two"]
    assert made.times(1, 2) == [(1.0, 3), (2.0, 5)]


def test_it_ends_with_how_long_it_took_and_how_it_ended() -> None:
    response = tape(b"x").finish(7.5, "marked")

    assert (response.latency_ms, response.verdict) == (7.5, "marked")


@given(st.lists(st.binary(max_size=5)), st.data())
def test_reading_on_from_each_piece_s_end_gives_the_whole(
    pieces: list[bytes], data: st.DataObject
) -> None:
    made, position, read = tape(*pieces), 0, []
    while position < made.size:
        end = data.draw(st.integers(position + 1, made.size))
        read.append(made.read(position, end))
        position += len(read[-1])

    assert b"".join(read) == b"".join(pieces) == made.finish(0).body


def test_a_read_goes_no_further_than_its_chunk() -> None:
    made = tape(b"one", b"", b"two")

    assert [made.read(0, 6), made.read(1, 2), made.read(3, 6)] == [b"one", b"n", b"two"]


def test_an_empty_chunk_is_left_out() -> None:
    made = tape(b"one")
    made.add([b"", b"two", b""], 1.0)

    assert (made.count, made.size) == (2, 6)
    assert list(made.finish(0).chunk_times) == [(0.0, 3), (1.0, 3)]


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_large_body_lies_in_a_file_and_reads_as_before(
    framing: str, tmp_path: Path
) -> None:
    piece = os.urandom(300_001)
    made = ResponseBuffer(ResponseHead(200, framing=framing), lambda: str(tmp_path))  # type: ignore[arg-type]
    most = read = 0
    for at in range(20):
        made.add([piece], float(at))
        # What the buffer holds shows nowhere else than in memory.
        most = max(most, sum(map(len, made._pieces)))
        if made.should_spill:
            await made.spill()
        while read < made.size:
            found = made.read(read, made.size)
            assert found == piece[read % 300_001 :][: len(found)]
            assert found
            read += len(found)
    response = made.finish(9.0, "complete")

    assert most < 2 * LARGE_BODY
    assert (response.body, response.verdict) == (b"", "complete")
    assert response.file is not None
    assert await read_body(response.file) == piece * 20
    cut = [(float(at), 300_001) for at in range(20)]
    assert list(response.arrivals()) == (cut if framing == "chunked" else [(19.0, 20 * 300_001)])
    assert list(tmp_path.iterdir()) == []


async def test_a_piece_that_comes_while_others_are_moved_is_not_lost(tmp_path: Path) -> None:
    made = tape(b"x" * LARGE_BODY, b"y")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.spill())
        await asyncio.sleep(0)
        made.add([b"z"], 2.0)
    made.add([b"end"], 3.0)

    response = made.finish(0)

    assert response.file is not None
    assert await read_body(response.file) == b"x" * LARGE_BODY + b"yzend"
    assert response.chunk_times == ChunkTimes([(0.0, LARGE_BODY), (1.0, 1), (2.0, 1), (3.0, 3)])


async def test_an_error_says_that_no_file_could_be_created(tmp_path: Path) -> None:
    made = ResponseBuffer(ResponseHead(200), lambda: str(tmp_path / "gone"))
    made.add([b"x"], 0.0)

    with pytest.raises(StoreError, match="could not write a large body"):
        await made.spill()


def begun() -> tuple[ResponseReader, ResponseBuffer]:
    feed, tape = ResponseReader(), ResponseBuffer(HEAD)
    feed.begin(tape, "recorded", 7)
    return feed, tape


async def test_a_reader_gets_each_chunk_up_to_the_released_byte() -> None:
    feed, tape = begun()
    read: list[bytes] = []

    async def follow() -> None:
        async for pieces in feed.pieces():
            read.extend(pieces)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        tape.add([b"one"], 0.0)
        tape.add([b"two"], 0.0)
        feed.release(4)
        await until(lambda: read == [b"one", b"t"])
        feed.release(2)
        feed.release(tape.size)
        await until(lambda: read == [b"one", b"t", b"wo"])
        feed.close()


async def test_a_late_reader_gets_all_released_bytes_and_no_more() -> None:
    feed, tape = begun()
    for data in (b"one", b"two", b"held"):
        tape.add([data], 0.0)
    feed.release(6)
    feed.close()

    assert [pieces async for pieces in feed.pieces()] == [[b"one", b"two"]]
    assert (await feed.head(), feed.outcome, feed.index) == (HEAD, "recorded", 7)


async def test_a_response_that_never_began_has_no_head() -> None:
    feed = ResponseReader()
    feed.close()

    assert await feed.head() is None
    assert [piece async for piece in feed.pieces()] == []
