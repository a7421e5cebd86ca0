"""A worker, seen from above."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from tapeway.errors import ConfigError, StoreAway, TapewayError
from tapeway.workers.messages import told
from tapeway.workers.pipe import Channel, PipeReader
from tapeway.workers.process import WorkerProcess, said

DEADLINE_S = 60.0


@pytest.fixture
async def hand() -> AsyncIterator[tuple[WorkerProcess, Channel]]:
    """One whose process has nothing to say, and the end where a test says it."""
    ours, theirs = [await Channel.over(each) for each in socket.socketpair()]
    process = await asyncio.create_subprocess_exec("true")
    read_end, write_end = os.pipe()
    os.close(write_end)
    made = WorkerProcess(3, process, ours, PipeReader(read_end))
    async with asyncio.timeout(DEADLINE_S):
        yield made, theirs
        assert await made.ended() == 0
    made.close()
    theirs.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError("--route x: cannot be used"), ConfigError),
        (StoreAway("the database does not answer"), TapewayError),
    ],
)
async def test_what_kept_it_from_serving_is_raised_as_what_it_was(
    hand: tuple[WorkerProcess, Channel], error: TapewayError, kind: type[TapewayError]
) -> None:
    hand[1].send(("failed", *told(error)))
    with pytest.raises(kind) as raised:
        await hand[0].ready()

    assert type(raised.value) is kind
    assert told(raised.value) == told(error)
    assert not hand[0].serving


async def test_one_that_ends_before_it_serves_has_not_begun(
    hand: tuple[WorkerProcess, Channel],
) -> None:
    hand[1].close()
    with pytest.raises(TapewayError, match="worker 3 ended before it served"):
        await hand[0].ready()


async def test_whoever_waits_for_its_answer_is_told_when_it_is_gone(
    hand: tuple[WorkerProcess, Channel],
) -> None:
    found, theirs = hand
    theirs.send(("ready",))
    await found.ready()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(found.attend(lambda: None))
        asking = [tasks.create_task(found.look()), tasks.create_task(found.quiet("c"))]
        assert await theirs.receive() == ("look", 1)
        theirs.close()
        await asyncio.wait(asking)
    await found.look()

    assert not found.serving


async def test_its_answers_come_to_who_asked(hand: tuple[WorkerProcess, Channel]) -> None:
    found, theirs = hand
    theirs.send(("ready",))
    await found.ready()
    hinted = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(found.attend(hinted.set))
        quiet = tasks.create_task(found.quiet("c"))
        look = tasks.create_task(found.look())
        assert [await theirs.receive() for _ in range(2)] == [("quiet", 1, "c"), ("look", 2)]
        theirs.send(("answer", 2, (5, ("away", "store_unreachable", 503))))
        await look
        assert not quiet.done()
        theirs.send(("answer", 1, None))
        await quiet
        theirs.send(("hint",))
        await hinted.wait()
        theirs.close()

    assert found.standing.in_flight == 5
    assert found.standing.trouble == ("away", "store_unreachable", 503)


def test_how_one_ended_is_said_in_words() -> None:
    assert said(1) == "ended with exit code 1"
    assert said(-9) == "was killed by SIGKILL"
    assert said(-77) == "was killed by signal 77"
