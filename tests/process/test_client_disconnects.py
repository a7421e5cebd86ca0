"""A client that leaves does not stop the recording: the retry is served from it."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import Tapeway, request
from tests.support.raw_client import RawClient


@pytest.mark.parametrize("moment", ["before the answer", "during the answer", "after its head"])
@pytest.mark.parametrize("mode", ["auto", "record"])
async def test_the_recording_is_made_once_and_serves_the_retry(
    tmp_path: Path, mode: str, moment: str
) -> None:
    async with Upstream(chunked=True, size=2**20) as upstream:
        options = ("--upstream", upstream.url, "--mode", mode)
        async with Tapeway(tmp_path, *options) as tapeway:
            await _ask_and_leave(tapeway, upstream, moment)
            await tapeway.until(lambda: upstream.answers.get("/left"), "the upstream answered")
            if mode == "record":
                # The recording may still be on its way to the disk; eject waits for it.
                await _recorded(tapeway)
                code, _ = await tapeway.admin("PUT", "/api/v1/mode", {"mode": "replay"})
                assert code == 200
            retry = await tapeway.ask("/left")
            (cassette,) = (await tapeway.status())["cassettes"]

    assert retry.body == upstream.only_answer("/left")
    assert retry.outcome == b"replayed"
    assert cassette["interactions"] == 1


async def test_the_recording_is_made_when_the_stop_comes_after_the_client_left(
    tmp_path: Path,
) -> None:
    async with Upstream() as upstream:
        upstream.gate.clear()
        async with Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
            async with RawClient(tapeway.proxy) as client:
                await client.send(request("/left", b"", tapeway.login))
                await upstream.was_asked("/left")
            tapeway.signal(signal.SIGTERM)
            await tapeway.unready()
            upstream.gate.set()
            assert await tapeway.ended() == 0
        async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
            assert (await tapeway.ask("/left")).body == upstream.only_answer("/left")


async def test_the_first_of_several_equal_callers_may_leave(tmp_path: Path) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            async with RawClient(tapeway.proxy) as first:
                await first.send(request("/shared", b"", tapeway.login))
                await upstream.was_asked("/shared")
                others = [tasks.create_task(tapeway.ask("/shared")) for _ in range(5)]
            upstream.gate.set()

        bodies = {each.result().body for each in others}
        assert bodies == {upstream.only_answer("/shared")}
        assert {each.result().outcome for each in others} == {b"replayed"}


async def test_half_an_upload_reaches_nobody(tmp_path: Path) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        async with RawClient(tapeway.proxy) as client:
            await client.send(request("/half", b"x" * 1000)[:-1])
        assert (await tapeway.ask("/other")).status == 200
        assert (await tapeway.status())["cassettes"][0]["interactions"] == 1

    assert upstream.asks == {"/other": 1}


async def _ask_and_leave(tapeway: Tapeway, upstream: Upstream, moment: str) -> None:
    if moment == "before the answer":
        upstream.gate.clear()
    elif moment == "during the answer":
        upstream.rest.clear()
    async with RawClient(tapeway.proxy) as client:
        await client.send(request("/left", b"", tapeway.login))
        await upstream.was_asked("/left")
        if moment == "during the answer":
            await tapeway.until(lambda: upstream.answers, "the upstream began")
        elif moment == "after its head":
            await client.reader.readuntil(b"\r\n\r\n")
    upstream.gate.set()
    upstream.rest.set()


async def _recorded(tapeway: Tapeway) -> None:
    for _ in range(1000):
        (cassette,) = (await tapeway.status())["cassettes"]
        if cassette["interactions"]:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError
