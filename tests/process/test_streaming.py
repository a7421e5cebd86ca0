"""A stream's end is on the disk before its client sees it, however the process ends."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.process.serving import Tapeway, request
from tests.process.strace import Trace
from tests.server.streaming import LAST, chunk, head
from tests.support.raw_client import RawClient
from tests.support.socket_upstream import Peer, Step
from tests.support.streams import CHAT, SSE

DONE = b"data: [DONE]\n\n"
TARGET = "/openai/v1/chat/completions"
STREAM: tuple[Step, ...] = (head(SSE), chunk(CHAT), chunk(CHAT + DONE), LAST)
ROUNDS = 5


def options(peer: Peer) -> tuple[str, ...]:
    return ("--route", f"openai={peer.url}", "--delivery", "stream")


def call(number: int = 0) -> bytes:
    return request(TARGET, b'{"stream":true,"n":%d}' % number)


async def test_what_a_client_saw_the_end_of_outlives_a_kill_at_that_moment(tmp_path: Path) -> None:
    async with Peer(*STREAM) as peer:
        for number in range(ROUNDS):
            async with Tapeway(tmp_path, *options(peer)) as tapeway:
                async with RawClient(tapeway.proxy) as app:
                    await app.send(call(number))
                    await app.until(b"data: [DONE]")
                    tapeway.signal(signal.SIGKILL)
                assert await tapeway.ended() == -signal.SIGKILL
    async with Tapeway(tmp_path, "--mode", "replay") as tapeway, RawClient(tapeway.proxy) as app:
        for number in range(ROUNDS):
            answer = await app.ask(call(number))
            assert (answer.outcome, answer.complete) == (b"replayed", True)
            assert answer.chunks == [CHAT, CHAT + DONE]


@pytest.mark.slow
async def test_the_end_mark_is_sent_when_the_recording_is_synced(tmp_path: Path) -> None:
    # The sync is held up, so that whoever does not wait for it overtakes it.
    calls = "fdatasync,fsync,write,writev,sendto,sendmsg"
    delay = "inject=fdatasync,fsync:delay_exit=800000"
    trace = Trace(tmp_path / "trace", "-e", f"trace={calls}", "-e", delay)
    gate = asyncio.Event()
    async with (
        Peer(head(SSE), chunk(CHAT), gate, chunk(CHAT + DONE), LAST) as peer,
        Tapeway(tmp_path, *options(peer), command=trace.command) as tapeway,
        RawClient(tapeway.proxy) as app,
    ):
        await app.send(call())
        await app.until(CHAT + b"\r\n")
        gate.set()
        assert await app.until(LAST) == chunk(CHAT) + chunk(DONE) + LAST

    to_client = f"127.0.0.1:{tapeway.proxy.rpartition(':')[2]}->"
    synced = trace.end_of("fdatasync", "/cassettes/default.journal>")
    assert trace.first(to_client, "choices") < synced
    assert trace.first(to_client, "data: [DONE]") > synced
    assert trace.end_of("fsync", "/cassettes>") < trace.first(to_client, "data: [DONE]")
