"""Nothing is left behind: no warning at the end, no descriptor or task after a request."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import COMMAND, Tapeway, address_of, request
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient
from tests.support.reuse import reuse_all

STRICT = (sys.executable, "-X", "dev", "-W", "error", *COMMAND[1:])


@pytest.mark.slow
async def test_a_strict_interpreter_finds_nothing_to_warn_of(tmp_path: Path) -> None:
    [nobody] = free_ports(1)
    async with Upstream(chunked=True) as upstream:
        options = ("--upstream", upstream.url, "--drain-timeout", "0.2", "--log-level", "debug")
        routes = ("--route", f"nobody=http://127.0.0.1:{nobody}")
        async with Tapeway(tmp_path, *options, *routes, command=STRICT) as tapeway:
            await _do_a_bit_of_everything(tapeway, upstream)
            tapeway.signal(signal.SIGTERM)
            assert await tapeway.ended() == 0

    # In this mode the event loop says what took long; a busy machine makes anything take long.
    said = [line for line in tapeway.stderr.splitlines() if "asyncio: Executing" not in line]
    for word in ("Warning", "Exception ignored", "never", "unclosed", "destroyed", "Traceback"):
        assert [line for line in said if word in line] == []
    assert {line["level"] for line in tapeway.log} <= {"debug", "info", "warning"}


@pytest.mark.slow
async def test_two_thousand_requests_leave_nothing_open(tmp_path: Path) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        fresh = _sockets(tapeway)

        def at_rest() -> bool:
            return _sockets(tapeway) == fresh + upstream.open_connections

        await _two_hundred_requests(tapeway, 0)
        await tapeway.until(at_rest, "it came to rest")
        before = _open(tapeway)
        for round_number in range(1, 11):
            await _two_hundred_requests(tapeway, round_number)
        await tapeway.until(at_rest, "it came to rest")
        after = _open(tapeway)
        threads = os.listdir(f"/proc/{tapeway.pid}/task")
        assert (await tapeway.status())["counts"]["error"] == 0

    assert [text for text in after if not text.startswith("socket:")] == [
        text for text in before if not text.startswith("socket:")
    ]
    assert len(threads) <= 32


@pytest.mark.slow
async def test_replays_take_no_more_memory_the_more_there_are(tmp_path: Path) -> None:
    reuse_all(tmp_path)
    async with (
        Upstream(size=16 * 1024) as upstream,
        Tapeway(tmp_path, "--upstream", upstream.url, "--journal-size", "100") as tapeway,
    ):
        await _replays(tapeway, 500)
        before = _resident_kib(tapeway)
        await _replays(tapeway, 4000)
        assert _resident_kib(tapeway) - before < 4096


async def _do_a_bit_of_everything(tapeway: Tapeway, upstream: Upstream) -> None:
    for target in ("/one", "/one", "/@other/two", "/nobody/x"):
        await tapeway.ask(target)
    await tapeway.ask("/upload", b"x" * 200_000)
    for mode in ("passthrough", "record", "replay", "auto"):
        await tapeway.admin("PUT", "/api/v1/mode", {"mode": mode})
        await tapeway.ask(f"/in-{mode}")
    reader, writer = await asyncio.open_connection(*address_of(tapeway.ready["admin"]))
    admin = str(tapeway.ready["admin"]).removeprefix("http://")
    writer.write(request("/api/v1/events", host=admin))
    await reader.readuntil(b"entries follow")
    writer.close()
    async with RawClient(tapeway.proxy) as half:
        await half.send(request("/half", b"x" * 1000)[:-1])
    assert (await tapeway.admin("POST", "/api/v1/eject", {}))[0] == 200
    for path in ("/metrics", "/api/v1/journal", "/api/v1/report", "/api/v1/cassettes"):
        async with RawClient(str(tapeway.ready["admin"])) as client:
            assert (await client.ask(request(path, host=admin))).status == 200
    upstream.gate.clear()
    async with RawClient(tapeway.proxy) as leaving:
        await leaving.send(request("/slow"))
        await upstream.was_asked("/slow")


async def _two_hundred_requests(tapeway: Tapeway, number: int) -> None:
    async def call(client: int) -> None:
        for call_number in range(10):
            async with RawClient(tapeway.proxy) as connection:
                target = f"/{number}/{client}/{call_number}"
                await connection.ask(request(target))
                await connection.ask(request(target))

    async with asyncio.TaskGroup() as tasks:
        for client in range(10):
            tasks.create_task(call(client))


async def _replays(tapeway: Tapeway, number: int) -> None:
    async with RawClient(tapeway.proxy) as client:
        for _ in range(number):
            assert (await client.ask(request("/x"))).status == 200


def _resident_kib(tapeway: Tapeway) -> int:
    status = Path(f"/proc/{tapeway.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def _open(tapeway: Tapeway) -> list[str]:
    folder = f"/proc/{tapeway.pid}/fd"
    found: list[str] = []
    for fd in os.listdir(folder):
        try:
            found.append(os.readlink(f"{folder}/{fd}"))
        except FileNotFoundError:
            continue
    return sorted(found)


def _sockets(tapeway: Tapeway) -> int:
    return sum(text.startswith("socket:") for text in _open(tapeway))
