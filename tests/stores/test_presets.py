"""A cassette begins with the preset of the client that is recorded, in every store."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tapeway.core.json_text import Json, dump
from tapeway.ports import CassetteStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.stores.contract.kinds import KINDS, Place
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer

CLAUDE = b"User-Agent: claude-cli/2.1.197 (external, cli)"
SDK = b"User-Agent: Anthropic/Python 2.12.0"
CODEX = b"User-Agent: codex_exec/0.169.0 (Debian)"
PRESET: Json = {"presets": ["claude-code"]}
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with request.param.of_test(request, tmp_path) as found:
        yield found


def message(folder: str, prompt: str = "hello") -> bytes:
    """A request as Claude Code sends it from this folder."""
    system = f"# Environment\n - Primary working directory: {folder}\n - Platform: linux\nAct."
    return dump({"system": system, "messages": [{"role": "user", "content": prompt}]})


async def ask(proxy: RunningProxy, agent: bytes, body: bytes) -> Answer:
    return await proxy.ask(
        b"POST /v1/messages", b"Content-Type: application/json", agent, body=body
    )


@asynccontextmanager
async def recording(
    place: Place, *, presets: bool = True, answers: int = 3
) -> AsyncIterator[RunningProxy]:
    async with Peer() as peer:
        for _ in range(answers):
            peer.then(ANSWER)
        run = running_proxy(peer.url, mode="auto", store=place.again(), presets=presets)
        async with run as proxy:
            yield proxy


async def replayed(place: Place, *bodies: bytes) -> list[int]:
    """The statuses of a replay in another process."""
    run = running_proxy("http://127.0.0.1:9", mode="replay", store=place.again(), presets=True)
    async with run as proxy:
        return [(await ask(proxy, CLAUDE, body)).status for body in bodies]


async def rules(place: Place) -> Json:
    store = place.again()
    await store.open()
    try:
        stored = await store.load("default", writable=False)
    finally:
        await store.close()
    return None if stored is None else stored.head.meta.get("rules")


async def test_what_claude_code_recorded_here_answers_there(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with recording(place) as proxy:
        for folder in ("/home/ann", "/home/bob"):
            assert (await ask(proxy, CLAUDE, message(folder))).status == 200
        assert (await ask(proxy, CLAUDE, message("/home/ann", "goodbye"))).status == 200
        assert len(await proxy.recorded()) == 2

    assert await rules(place) == PRESET
    assert await replayed(place, message("/x"), message("/x", "what?")) == [200, 400]
    (told,) = [record.getMessage() for record in caplog.records if "preset" in record.getMessage()]
    assert "claude-code" in told
    assert "--no-presets" in told


@pytest.mark.parametrize(("agent", "presets"), [(SDK, True), (b"X: y", True), (CLAUDE, False)])
async def test_without_a_known_client_or_with_no_presets_there_is_none(
    tmp_path: Path, agent: bytes, presets: bool
) -> None:
    async with next(kind for kind in KINDS if kind.name == "file").place(tmp_path, "") as place:
        async with recording(place, presets=presets) as proxy:
            await ask(proxy, agent, message("/home/ann"))

        assert await rules(place) is None
        assert await replayed(place, message("/home/ann"), message("/x")) == [200, 400]


async def test_a_client_that_comes_after_another_brings_its_own(place: Place) -> None:
    async with recording(place) as proxy:
        await ask(proxy, SDK, message("/home/ann", "first"))
        await ask(proxy, CLAUDE, message("/home/ann"))
        await ask(proxy, CODEX, message("/home/ann", "third"))

    assert await rules(place) == {"presets": ["claude-code", "codex"]}
    assert await replayed(place, message("/x"), message("/x", "first")) == [200, 200]


async def test_a_preset_that_was_removed_is_not_added_again(place: Place) -> None:
    async with recording(place) as proxy:
        await ask(proxy, CLAUDE, message("/home/ann"))
    await _without_rules(place.again())

    async with recording(place) as proxy:
        await ask(proxy, CLAUDE, message("/home/ann", "more"))

    assert await rules(place) is None
    assert await replayed(place, message("/home/ann", "more"), message("/x")) == [200, 400]


async def test_a_cassette_that_was_ejected_gets_no_preset(place: Place) -> None:
    async with recording(place) as proxy:
        await ask(proxy, SDK, message("/home/ann", "first"))
        await proxy.broker.eject("default")
        await ask(proxy, CLAUDE, message("/home/ann"))

    assert await rules(place) is None
    assert await replayed(place, message("/home/ann"), message("/x")) == [200, 400]


async def test_replaying_adds_no_preset(place: Place) -> None:
    async with recording(place, presets=False) as proxy:
        await ask(proxy, CLAUDE, message("/home/ann"))

    assert await replayed(place, message("/x")) == [400]
    assert await rules(place) is None


async def test_a_client_whose_first_calls_come_together_gets_its_preset(place: Place) -> None:
    async with recording(place) as proxy:
        asked = [message("/home/ann", prompt) for prompt in ("one", "two", "three")]
        answers = await asyncio.gather(*map(partial(ask, proxy, CLAUDE), asked))
        assert [answer.status for answer in answers] == [200] * 3

    assert await rules(place) == PRESET
    assert await replayed(place, *[message("/x", text) for text in ("one", "two")]) == [200, 200]


async def test_a_call_that_goes_on_does_not_keep_a_client_from_its_preset(place: Place) -> None:
    listened = asyncio.Event()
    async with Peer() as peer:
        peer.then(listened, ANSWER).then(ANSWER).then(ANSWER)
        run = running_proxy(peer.url, mode="auto", store=place.again(), presets=True)
        async with run as proxy, asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(proxy, SDK, message("/home/ann", "listen")))
            await peer.asked.wait()
            assert (await ask(proxy, CLAUDE, message("/home/ann"))).outcome == b"recorded"
            assert (await ask(proxy, CLAUDE, message("/home/bob"))).outcome == b"replayed"
            listened.set()

    assert await rules(place) == PRESET
    assert await replayed(place, message("/x"), message("/x", "listen")) == [200, 200]


async def _without_rules(store: CassetteStore) -> None:
    await store.open()
    stored = await store.load("default", writable=True)
    assert stored is not None
    meta = {key: value for key, value in stored.head.meta.items() if key != "rules"}
    await store.save("default", replace(stored, head=replace(stored.head, meta=meta)))
    await store.close()
