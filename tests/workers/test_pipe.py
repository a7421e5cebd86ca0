"""The pipe between two processes, at both of its ends."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator

import pytest

from tapeway.engine.journal import ServedRequest
from tapeway.workers import pipe as worker_pipe
from tapeway.workers.pipe import Channel, PipeReader, PipeWriter

DEADLINE_S = 60.0


def entry(number: int) -> ServedRequest:
    path = f"/{number}".ljust(200, "x")
    return ServedRequest(f"tw-{number}", 0.0, "c", "r", "GET", path, "live", 200, None, 0.0, None)


class Pipe:
    """Both ends, a clock that counts, and what a worker knows besides."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self.inlet = PipeReader(read_end)
        self.connections = 0
        self.hinted = asyncio.Event()
        self.hints = 0
        self.opened: list[int] = []
        self._now = 0.0
        self.outlet = PipeWriter(
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

    def told(self) -> list[object]:
        found = self.inlet.read()
        self.opened += [each.connections for each in found]
        return [each.served for each in found]


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    made = Pipe()
    yield made
    made.inlet.close()
    os.close(made.write_end)


async def test_what_was_told_can_be_read_at_once(pipe: Pipe) -> None:
    pipe.outlet.add(entry(1))

    assert pipe.told() == [entry(1)]
    assert pipe.told() == []


async def test_it_is_read_to_the_end_when_the_worker_is_no_more(pipe: Pipe) -> None:
    pipe.outlet.add(entry(1))
    os.write(pipe.write_end, b"\x00\x00\x10\x00half of what it was about to tell")
    os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.write_end)

    assert pipe.told() == [entry(1)]


async def test_connections_are_told_with_all_else(pipe: Pipe) -> None:
    for pipe.connections in (0, 1, 3):
        pipe.outlet.add(entry(0))
    pipe.told()

    assert pipe.opened == [0, 1, 3]


async def test_that_there_is_something_to_read_is_said_once_for_many(pipe: Pipe) -> None:
    for number in range(50):
        pipe.outlet.add(entry(number))
    assert pipe.hints == 0
    async with asyncio.timeout(DEADLINE_S):
        await pipe.hinted.wait()

    assert pipe.hints == 1
    assert len(pipe.told()) == 50


async def test_what_has_no_room_in_the_pipe_waits_and_keeps_its_order(pipe: Pipe) -> None:
    count = 10_000
    for number in range(count):
        pipe.outlet.add(entry(number))
    found = pipe.told()
    assert len(found) < count
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            await asyncio.sleep(0)
            found += pipe.told()

    assert found == [entry(number) for number in range(count)]


async def test_what_nobody_reads_does_not_fill_the_memory(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_pipe, "_MOST_WAITING", 1000)
    with caplog.at_level(logging.ERROR):
        for number in range(10_000):
            pipe.outlet.add(entry(number))
    found = pipe.told()
    pipe.outlet.flush()
    found += pipe.told()

    assert found == [entry(number) for number in range(len(found))]
    assert len(found) < 10_000
    assert [each.getMessage() for each in caplog.records] == [
        "requests are missing in the journal: the process that keeps it does not read"
    ]


async def test_nothing_is_raised_when_nobody_will_ever_read(pipe: Pipe) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), pipe.inlet.fileno())
    for number in range(3):
        pipe.outlet.add(entry(number))
    pipe.outlet.flush()


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel, Channel]]:
    one, two = [await Channel.over(each) for each in socket.socketpair()]
    yield one, two
    one.close()
    two.close()


async def test_it_is_heard_in_the_order_it_was_said(ends: tuple[Channel, Channel]) -> None:
    one, two = ends
    said = [("answer", number, "x" * 10_000) for number in range(50)]
    async with asyncio.timeout(DEADLINE_S):
        for each in said:
            one.send(each)
        heard = [await two.receive() for _ in said]

    assert heard == said


async def test_the_last_words_are_heard_and_then_that_nobody_is_there(
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
