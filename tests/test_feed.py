"""A feed gives out what it may, at the reader's pace, and no more."""

import asyncio

from tapeway.core.model.messages import ResponseChunk, ResponseHead
from tapeway.engine.response_buffer import ResponseBuffer, ResponseReader
from tests.fakes.world import until

HEAD = ResponseHead(200, framing="chunked")


def begun() -> tuple[ResponseReader, ResponseBuffer]:
    feed, tape = ResponseReader(), ResponseBuffer(HEAD)
    feed.begin(tape, "recorded", 7)
    return feed, tape


async def test_it_gives_out_each_chunk_up_to_where_it_may() -> None:
    feed, tape = begun()
    read: list[bytes] = []

    async def follow() -> None:
        async for piece in feed.pieces():
            read.append(piece)  # noqa: PERF401 - what has come by now is looked at

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        tape.add(ResponseChunk(b"one"))
        tape.add(ResponseChunk(b"two"))
        feed.release(4)
        await until(lambda: read == [b"one", b"t"])
        feed.release(2)
        feed.release(tape.size)
        await until(lambda: read == [b"one", b"t", b"wo"])
        feed.close()


async def test_who_reads_late_gets_all_that_was_given_out_and_nothing_behind_it() -> None:
    feed, tape = begun()
    for data in (b"one", b"two", b"held"):
        tape.add(ResponseChunk(data))
    feed.release(6)
    feed.close()

    assert [piece async for piece in feed.pieces()] == [b"one", b"two"]
    assert (await feed.head(), feed.outcome, feed.index) == (HEAD, "recorded", 7)


async def test_one_that_never_began_has_no_head() -> None:
    feed = ResponseReader()
    feed.close()

    assert await feed.head() is None
    assert [piece async for piece in feed.pieces()] == []
