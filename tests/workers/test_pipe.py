"""The pipe and the channel between two processes, at both ends."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator

import pytest

from tapeway.engine.journal import ClientTexts, ServedRequest
from tapeway.workers import pipe as worker_pipe
from tapeway.workers.pipe import Channel, PipeReader, PipeWriter

DEADLINE_S = 60.0


def entry(number: int) -> ServedRequest:
    path = f"/{number}".ljust(200, "x")
    return ServedRequest(
        f"tw-{number}", 0.0, "c", "r", "GET", ClientTexts(path), "live", 200, None, 0.0, None
    )


class Pipe:
    """Both ends, a clock that counts, and the worker's number of connections."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self.reader = PipeReader(read_end)
        self.connections = 0
        self.hinted = asyncio.Event()
        self.hints = 0
        self._now = 0.0
        self.writer = PipeWriter(
            self.write_end,
            clock=self._tick,
            connections=lambda: self.connections,
            hint=self._hint,
        )

    def _tick(self) -> float:
        self._now += 1.0
        return self._now

    def _hint(self) -> None:
        self.hints += 1
        self.hinted.set()

    def read(self) -> list[ServedRequest]:
        return [served for _, served in self.reader.read()]


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    made = Pipe()
    yield made
    made.reader.close()
    os.close(made.write_end)


async def test_an_entry_can_be_read_at_once(pipe: Pipe) -> None:
    pipe.writer.add(entry(1))

    assert pipe.read() == [entry(1)]
    assert pipe.read() == []


async def test_complete_frames_can_be_read_after_the_worker_has_ended(pipe: Pipe) -> None:
    pipe.writer.add(entry(1))
    os.write(pipe.write_end, b"\x00\x00\x10\x00half of what it was about to tell")
    os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.write_end)

    assert pipe.read() == [entry(1)]


async def test_each_report_has_the_number_of_connections(pipe: Pipe) -> None:
    for pipe.connections in (0, 1, 3):
        pipe.writer.add(entry(0))
        pipe.read()

        assert pipe.reader.connections == pipe.connections


async def test_one_hint_is_sent_for_many_entries(pipe: Pipe) -> None:
    for number in range(50):
        pipe.writer.add(entry(number))
    assert pipe.hints == 0
    async with asyncio.timeout(DEADLINE_S):
        await pipe.hinted.wait()

    assert pipe.hints == 1
    assert len(pipe.read()) == 50


async def test_entries_that_a_full_pipe_cannot_take_are_written_later_in_order(pipe: Pipe) -> None:
    count = 10_000
    for number in range(count):
        pipe.writer.add(entry(number))
    found = pipe.read()
    assert len(found) < count
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            await asyncio.sleep(0)
            found += pipe.read()

    assert found == [entry(number) for number in range(count)]


async def test_a_reader_that_does_not_read_cannot_fill_the_memory(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_pipe, "MAX_BUFFERED", 1000)
    with caplog.at_level(logging.ERROR):
        for number in range(10_000):
            pipe.writer.add(entry(number))
    found = pipe.read()
    pipe.writer.flush()
    found += pipe.read()

    assert found == [entry(number) for number in range(len(found))]
    assert len(found) < 10_000
    assert [record.getMessage() for record in caplog.records] == [
        "the supervisor does not read: requests are missing in the journal"
    ]


async def test_nothing_is_raised_when_the_reader_is_gone(pipe: Pipe) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), pipe.reader.fileno())
    for number in range(3):
        pipe.writer.add(entry(number))
    pipe.writer.flush()


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel, Channel]]:
    one, two = [await Channel.over(end) for end in socket.socketpair()]
    yield one, two
    one.close()
    two.close()


async def test_values_are_received_in_the_order_they_were_sent(
    ends: tuple[Channel, Channel],
) -> None:
    one, two = ends
    sent = [("told", number, "x" * 10_000) for number in range(50)]
    async with asyncio.timeout(DEADLINE_S):
        for message in sent:
            one.send(message)
        received = [await two.receive() for _ in sent]

    assert received == sent


async def test_values_sent_before_closing_are_received_and_then_eof(
    ends: tuple[Channel, Channel],
) -> None:
    one, two = ends
    async with asyncio.timeout(DEADLINE_S):
        one.send(("failed", "why"))
        await one.sent()
        one.close()
        assert await two.receive() == ("failed", "why")
        with pytest.raises(EOFError):
            await two.receive()
        two.send("nobody hears it")
        await two.sent()
        two.send("nor this")
