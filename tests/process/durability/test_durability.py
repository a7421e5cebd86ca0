"""An answer is on the disk before its client sees a byte of it, however slow the disk is."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import Tapeway
from tests.process.strace import Trace
from tests.support.reuse import reuse_all

WRITES = "fdatasync,fsync,write,writev,sendto,sendmsg"


def slowed(tmp_path: Path, cassette: str, seconds: float) -> Trace:
    """Each sync of that cassette's journal takes so long."""
    journal = tmp_path / "cassettes" / f"{cassette}.journal"
    delay = f"inject=fdatasync:delay_exit={int(seconds * 1_000_000)}"
    return Trace(tmp_path / "trace", "-P", str(journal), "-e", "trace=fdatasync", "-e", delay)


@pytest.mark.parametrize("chunked", [False, True])
async def test_no_byte_of_an_answer_is_sent_before_its_recording_is_synced(
    tmp_path: Path, chunked: bool
) -> None:
    # The sync is held up, so that whoever does not wait for it overtakes it.
    delay = "inject=fdatasync,fsync:delay_exit=200000"
    trace = Trace(tmp_path / "trace", "-e", f"trace={WRITES}", "-e", delay)
    async with Upstream(chunked=chunked) as upstream:
        options = ("--upstream", upstream.url)
        async with Tapeway(tmp_path, *options, command=trace.command) as tapeway:
            answer = await tapeway.ask("/one")
            assert answer.outcome == b"recorded"
            again = await tapeway.ask("/two")
            assert again.outcome == b"recorded"

    port = tapeway.proxy.rpartition(":")[2]
    sent = trace.first(f"127.0.0.1:{port}->", "HTTP/1.1 200 OK")
    # With the first recording the journal's name has to be durable too.
    assert trace.end_of("fdatasync", "/cassettes/default.journal>") < sent
    assert trace.end_of("fsync", "/cassettes>") < sent
    assert len(trace.calls("fdatasync", "/cassettes/default.journal>")) >= 2


@pytest.mark.slow
async def test_while_the_disk_is_slow_everything_else_goes_on(tmp_path: Path) -> None:
    reuse_all(tmp_path)
    trace = slowed(tmp_path, "default", seconds=60)
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url)
        async with (
            Tapeway(tmp_path, *options, command=trace.command) as tapeway,
            asyncio.TaskGroup() as tasks,
        ):
            await tapeway.ask("/@other/known")
            slow = tasks.create_task(tapeway.ask("/slow"))
            await upstream.was_asked("/slow")
            for _ in range(5):
                assert (await tapeway.admin("GET", "/healthz"))[0] == 200
            assert (await tapeway.ask("/@other/known")).outcome == b"replayed"
            assert (await tapeway.ask("/@other/new")).outcome == b"recorded"
            assert not slow.done()
            trace.end(tapeway.pid)

    assert slow.result().body == upstream.only_answer("/slow")


@pytest.mark.slow
async def test_recordings_that_wait_for_the_disk_share_a_sync(tmp_path: Path) -> None:
    trace = slowed(tmp_path, "default", seconds=0.5)
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url)
        async with Tapeway(tmp_path, *options, command=trace.command) as tapeway:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(tapeway.ask(f"/{number}")) for number in range(40)]
            assert {task.result().outcome for task in asked} == {b"recorded"}
            shared = len(trace.calls("fdatasync", "default.journal>"))

    # How many depends on how many came while the first one's journal was made.
    assert 1 <= shared < 20


async def test_after_a_failed_sync_nothing_is_acknowledged_until_the_eject(tmp_path: Path) -> None:
    reuse_all(tmp_path)
    journal = tmp_path / "cassettes" / "default.journal"
    fault = ("-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=2")
    trace = Trace(tmp_path / "trace", "-P", str(journal), *fault)
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url)
        async with Tapeway(tmp_path, *options, command=trace.command) as tapeway:
            kept = await tapeway.ask("/kept")
            assert (await tapeway.admin("GET", "/readyz"))[0] == 200
            for target in ("/lost", "/after"):
                failed = await tapeway.ask(target)
                assert failed.status == 503
                error = json.loads(failed.body)["error"]
                assert error["code"] == "recording_failed"
                assert f"{journal}" in error["message"]
                assert "eject" in error["message"]
            code, unready = await tapeway.admin("GET", "/readyz")
            assert (code, unready["error"]["code"]) == (503, "store_poisoned")
            assert (await tapeway.ask("/kept")).body == kept.body

            assert (await tapeway.admin("POST", "/api/v1/eject", {}))[0] == 200
            assert (await tapeway.admin("GET", "/readyz"))[0] == 200
            again = await tapeway.ask("/after")
            assert again.outcome == b"recorded"
        async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
            for target, body in {"/kept": kept.body, "/after": again.body}.items():
                assert (await tapeway.ask(target)).body == body
