"""How workers end and are replaced, and that none outlives the supervisor."""

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import DEADLINE_S, FAILURE, Tapeway, eventually, request
from tests.process.workers.worker_processes import Crew, children, gone
from tests.support.raw_client import RawClient

WORKERS = 2


async def test_one_that_is_killed_comes_back_and_what_it_told_stays(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        crew = Crew(tmp_path, WORKERS, "--upstream", upstream.url, own_workers=True)
        async with Running(crew):
            await crew.ask_all([f"/{number}" for number in range(20)])
            victim, other = crew.workers
            admin = str(crew.ready["admin"])
            asked = partial(request, host=admin.removeprefix("http://"))
            async with RawClient(admin) as client:
                await client.ask(asked("/healthz"))
                # It learns of the end and gets the question at the same time.
                os.kill(crew.pid, signal.SIGSTOP)
                os.kill(victim, signal.SIGKILL)
                await eventually(lambda: ended(victim))
                await client.send(asked("/readyz"))
                os.kill(crew.pid, signal.SIGCONT)
                refused = await client.answer()
            # Half of them are for the one that is not there: they wait for the next.
            during = await crew.ask_all([f"/{number}" for number in range(20)])
            ready = await crew.is_ready()
            workers = crew.workers
            journal, status = await crew.journal(), await crew.status()

    assert (refused.status, json.loads(refused.body)["error"]["code"]) == (503, "worker_down")
    assert {answer.outcome for answer in during} == {b"replayed"}
    assert ready
    assert (len(workers), victim in workers, other in workers) == (WORKERS, False, True)
    assert status["counts"]["recorded"] == 20
    assert len([entry for entry in journal if entry["outcome"] == "recorded"]) == 20
    (line,) = [logged["message"] for logged in crew.log if logged["level"] == "error"]
    assert line == "worker 1 was killed by SIGKILL: starting another one"


def ended(pid: int) -> bool:
    """Whether a process has ended, and nobody was told yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
async def test_one_that_is_told_to_end_finishes_what_it_does_and_is_replaced(
    tmp_path: Path,
) -> None:
    async with Upstream() as upstream, Crew(tmp_path, WORKERS, "--upstream", upstream.url) as crew:
        upstream.gate.clear()
        before = crew.workers
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(crew.ask(f"/{number}")) for number in range(8)]
            for number in range(8):
                await upstream.was_asked(f"/{number}")
            os.kill(before[0], signal.SIGTERM)
            await crew.until(lambda: "stopping: waiting for" in crew.stderr, "it was told to end")
            upstream.gate.set()
        await eventually(lambda: len(set(crew.workers) - set(before)) == 1)
        again = await crew.ask_all([f"/{number}" for number in range(16)])

    assert {task.result().outcome for task in asking} == {b"recorded"}
    assert Counter(answer.outcome for answer in again) == {b"replayed": 8, b"recorded": 8}
    said, *_ = [line for line in crew.log if line["message"].startswith("stopping: waiting for")]
    assert said["worker"] == 1


@pytest.mark.slow
async def test_one_that_hangs_is_told_of(tmp_path: Path) -> None:
    async with Crew(tmp_path, WORKERS, own_workers=True) as crew:
        hung = crew.workers[1]
        os.kill(hung, signal.SIGSTOP)
        try:
            refused = await crew.admin("GET", "/readyz")
            alive = await crew.admin("GET", "/healthz")
            status = await crew.admin("GET", "/api/v1/status")
        finally:
            os.kill(hung, signal.SIGCONT)
        ready = await crew.admin("GET", "/readyz")

    assert refused[1]["error"]["code"] == "worker_down"
    assert f"process {hung}" in refused[1]["message"]
    assert [answer[0] for answer in (refused, alive, status, ready)] == [503, 200, 200, 200]


@pytest.mark.slow
async def test_one_that_hangs_does_not_keep_the_others_from_ending(tmp_path: Path) -> None:
    crew = Crew(tmp_path, WORKERS, "--drain-timeout", "0", own_workers=True)
    async with Running(crew):
        workers = crew.workers
        os.kill(workers[0], signal.SIGSTOP)
        assert await crew.stopped() == FAILURE
        await gone(workers)

    assert crew.stderr.splitlines()[-1] == "tapeway: a worker did not end in time and was killed"


async def test_all_drain_when_the_process_above_them_is_told_to_stop(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "60")
        upstream.gate.clear()
        async with Crew(tmp_path, WORKERS, *options) as crew, asyncio.TaskGroup() as tasks:
            workers = crew.workers
            asking = [tasks.create_task(crew.ask(f"/{number}")) for number in range(8)]
            for number in range(8):
                await upstream.was_asked(f"/{number}")
            crew.signal(signal.SIGTERM)
            await crew.unready()
            with pytest.raises(ConnectionRefusedError):
                await asked_until_refused(crew)
            during = await crew.admin("GET", "/readyz")
            upstream.gate.set()
            assert await crew.ended() == 0
            await gone(workers)

    assert during[1]["error"]["code"] == "draining"
    assert {task.result().outcome for task in asking} == {b"recorded"}
    async with Upstream() as upstream, Tapeway(tmp_path, *options, *crew.reopened) as again:
        replayed = [await again.ask(f"/{number}") for number in range(8)]
    assert [answer.body for answer in replayed] == [task.result().body for task in asking]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_all_of_them_at_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with Upstream() as upstream:
        upstream.gate.clear()
        options = ("--upstream", upstream.url, "--drain-timeout", "600")
        crew = Crew(tmp_path, WORKERS, *options)
        async with Running(crew), RawClient(crew.proxy) as client:
            workers = crew.workers
            await client.send(request("/slow"))
            await upstream.was_asked("/slow")
            crew.signal(number)
            await crew.unready()
            crew.signal(number)
            assert await crew.ended() == FAILURE
            await gone(workers)


async def test_none_outlives_the_process_above_them_and_each_finishes_what_it_does(
    tmp_path: Path,
) -> None:
    async with Upstream() as upstream:
        upstream.gate.clear()
        options = ("--upstream", upstream.url, "--drain-timeout", "60")
        crew = Crew(tmp_path, WORKERS, *options)
        async with Running(crew), asyncio.TaskGroup() as tasks:
            workers = crew.workers
            asking = [tasks.create_task(crew.ask(f"/{number}")) for number in range(8)]
            for number in range(8):
                await upstream.was_asked(f"/{number}")
            crew.signal(signal.SIGKILL)
            assert await crew.ended() == -signal.SIGKILL
            with pytest.raises(ConnectionRefusedError):
                await asked_until_refused(crew)
            upstream.gate.set()
            await gone(workers)

    assert {task.result().outcome for task in asking} == {b"recorded"}


@pytest.mark.slow
async def test_where_workers_die_again_and_again_all_end(tmp_path: Path) -> None:
    crew = Crew(tmp_path, WORKERS, own_workers=True)
    async with Running(crew), asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(crew.ended())
        while not ending.done():
            for pid in workers_of(crew):
                # It may have ended since it was listed.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)

    assert ending.result() == FAILURE
    assert crew.stderr.splitlines()[-1].startswith("tapeway: workers ended again and again")


async def test_what_no_worker_could_use_ends_the_start(tmp_path: Path) -> None:
    crew = Crew(tmp_path, WORKERS, "--upstream-ca", "missing.pem")
    async with Running(crew, start=False):
        await crew.launch()
        assert await crew.ended() == 2
        assert await crew.rest_of_stdout() == b""
    assert crew.stderr == "tapeway: --upstream-ca missing.pem cannot be read as PEM certificates\n"


class Running:
    """A crew that a test ends itself; nothing of it is left behind."""

    def __init__(self, crew: Crew, *, start: bool = True) -> None:
        self._crew = crew
        self._start = start

    async def __aenter__(self) -> None:
        if self._start:
            await self._crew.start()

    async def __aexit__(self, *_: object) -> None:
        await self._crew.kill()


def workers_of(crew: Crew) -> list[int]:
    try:
        return children(crew.pid)
    except FileNotFoundError:
        return []


async def asked_until_refused(crew: Crew) -> None:
    """Ask until nobody listens any more: each worker closes its listener when it hears of the end."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await crew.ask("/new")
            except (ConnectionResetError, BrokenPipeError):
                await asyncio.sleep(0.01)
