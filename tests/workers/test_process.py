"""A worker process, as the supervisor sees it."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator

import pytest

from tapeway.errors import ConfigError, StoreAway, TapewayError
from tapeway.server.listeners import listen_shared
from tapeway.settings.options import Settings
from tapeway.workers import process
from tapeway.workers.messages import WorkerConfig, encode_error
from tapeway.workers.pipe import Channel, PipeReader
from tapeway.workers.process import WorkerProcess, describe_exit

DEADLINE_S = 60.0


@pytest.fixture
async def worker() -> AsyncIterator[tuple[WorkerProcess, Channel]]:
    """A worker whose process does nothing, and the end of its channel for the test."""
    ours, theirs = [await Channel.over(end) for end in socket.socketpair()]
    started = await asyncio.create_subprocess_exec("true")
    read_end, write_end = os.pipe()
    os.close(write_end)
    made = WorkerProcess(3, started, ours, PipeReader(read_end))
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
async def test_an_error_that_kept_it_from_serving_is_raised_with_its_type(
    worker: tuple[WorkerProcess, Channel], error: TapewayError, kind: type[TapewayError]
) -> None:
    worker[1].send(("failed", *encode_error(error)))
    with pytest.raises(kind) as raised:
        await worker[0].ready()

    assert type(raised.value) is kind
    assert encode_error(raised.value) == encode_error(error)
    assert not worker[0].serving


async def test_a_worker_that_cannot_be_started_leaves_no_descriptor_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    (listener,) = listen_shared("--listen", "127.0.0.1", 0, 1)
    config = WorkerConfig(Settings(), None, (), "id")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", fails)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Too many open files"):
        await WorkerProcess.start(1, listener, config)

    assert os.listdir("/proc/self/fd") == before
    listener.socket.close()


async def test_ending_before_it_serves_is_an_error(
    worker: tuple[WorkerProcess, Channel],
) -> None:
    worker[1].close()
    with pytest.raises(TapewayError, match="worker 3 ended before it served"):
        await worker[0].ready()


async def test_questions_return_when_it_is_gone(
    worker: tuple[WorkerProcess, Channel],
) -> None:
    found, theirs = worker
    theirs.send(("ready",))
    await found.ready()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(found.receive(lambda: None))
        asking = [
            tasks.create_task(found.update_status()),
            tasks.create_task(found.wait_for_recordings("c")),
        ]
        assert await theirs.receive() == ("status", 1)
        theirs.close()
        await asyncio.wait(asking)
    await found.update_status()

    assert not found.serving


async def test_answers_go_to_their_questions(worker: tuple[WorkerProcess, Channel]) -> None:
    found, theirs = worker
    theirs.send(("ready",))
    await found.ready()
    hinted = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(found.receive(hinted.set))
        waiting = tasks.create_task(found.wait_for_recordings("c"))
        status = tasks.create_task(found.update_status())
        assert [await theirs.receive() for _ in range(2)] == [
            ("wait_for_recordings", 1, "c"),
            ("status", 2),
        ]
        theirs.send(("answer", 2, (5, ("away", "store_unreachable", 503), 2, 1)))
        await status
        assert not waiting.done()
        theirs.send(("answer", 1, None))
        await waiting
        theirs.send(("hint",))
        await hinted.wait()
        theirs.close()

    assert found.status.in_flight == 5
    assert found.status.open_connections == (2, 1)
    assert found.status.error == ("away", "store_unreachable", 503)


async def test_a_worker_is_responsive_again_once_it_answers(
    worker: tuple[WorkerProcess, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, theirs = worker
    monkeypatch.setattr(process, "RESPONSE_S", 0)
    monkeypatch.setattr(process, "UNRESPONSIVE_S", 0)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(found.receive(lambda: None))
        for _ in range(3):
            await found.update_status()
            assert found.status.unresponsive
        assert await theirs.receive() == ("status", 1)

        # However long the worker takes for the next answer, within the full wait.
        monkeypatch.setattr(process, "RESPONSE_S", DEADLINE_S)
        monkeypatch.setattr(process, "UNRESPONSIVE_S", DEADLINE_S)
        theirs.send(("answer", 1, (5, None, 2, 1)))
        status = tasks.create_task(found.update_status())
        assert await theirs.receive() == ("status", 2)
        theirs.send(("answer", 2, (6, None, 2, 1)))
        await status
        theirs.close()

    assert found.status.in_flight == 6
    assert not found.status.unresponsive


def test_an_exit_code_is_described_in_words() -> None:
    assert describe_exit(1) == "ended with exit code 1"
    assert describe_exit(-9) == "was killed by SIGKILL"
    assert describe_exit(-77) == "was killed by signal 77"
