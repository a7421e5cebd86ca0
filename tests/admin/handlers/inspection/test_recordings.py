"""Recordings under way: listed, and followed while they grow."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse

from tapeway.admin.handlers.inspection import recordings
from tapeway.admin.handlers.inspection.followers import Follower
from tapeway.core.model.messages import Request, ResponseHead
from tapeway.errors import UpstreamError
from tapeway.ports import OnChunks
from tests.admin.admin_and_proxy import World, world
from tests.support.memory import living

KEY = "sk-proj-Zk3mQ8vT1xW5yB7nD2fH4jL6pR9sA0cE"
PATH = "/v1/chat/completions"
SSE = ((b"Content-Type", b"text/event-stream"),)


class GrowingAnswer:
    """A service whose answer comes as the test puts it; None ends it, an error breaks it off."""

    connections = 0

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | UpstreamError | None] = asyncio.Queue()
        self.asked: asyncio.Queue[Request] = asyncio.Queue()
        self.begun = asyncio.Event()
        self.head = ResponseHead(200, "OK", SSE, "chunked")

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncIterator["GrowingAnswer"]:
        self.asked.put_nowait(request)
        await self.begun.wait()
        yield self

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        at_ms = 0.0
        while (piece := await self.pieces.get()) is not None:
            if isinstance(piece, UpstreamError):
                raise piece
            at_ms += 10.0
            on_chunks([piece], at_ms)
        return False

    async def pieces_of(self) -> AsyncIterator[bytes]:
        yield b""

    def elapsed_ms(self) -> float:
        return 1.0

    def say(self, *texts: str) -> None:
        self.begun.set()
        for text in texts:
            value = {"choices": [{"index": 0, "delta": {"content": text}}]}
            self.pieces.put_nowait(b"data: " + json.dumps(value).encode() + b"\n\n")

    def end(self) -> None:
        self.begun.set()
        self.pieces.put_nowait(b"data: [DONE]\n\n")
        self.pieces.put_nowait(None)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "LOOK_S", 0.005)


@asynccontextmanager
async def growing() -> AsyncIterator[tuple[World, GrowingAnswer, Any]]:
    """A call whose answer has not begun, and its place in the list."""
    async with world() as found, asyncio.TaskGroup() as tasks:
        answer = GrowingAnswer()
        found.broker.recorder.responder = answer  # type: ignore[assignment]
        asking = tasks.create_task(_ask(found))
        await answer.asked.get()
        (listed,) = (await found.got("/api/v1/recordings"))["recordings"]
        try:
            yield found, answer, listed
        finally:
            answer.begun.set()
            answer.pieces.put_nowait(None)
        await asking


async def _ask(found: World) -> None:
    sent = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    async with found.http.post(found.proxy + PATH, json=sent) as response:
        await response.read()


async def next_event(stream: ClientResponse) -> Any:
    name, data = (await stream.content.readuntil(b"\n\n")).split(b"\n", 1)
    assert name == b"event: recording"
    return json.loads(data.removeprefix(b"data: "))


async def until(stream: ClientResponse, text: str) -> str:
    """The text as a reader puts it together, once it is this."""
    found = ""
    while found != text:
        event = await next_event(stream)
        if event["text"] is not None:
            found = event["text"] if event["reset"] else found + event["text"]
    return found


async def test_it_is_listed_while_it_is_under_way() -> None:
    async with growing() as (found, answer, listed):
        assert listed | {"elapsed_ms": 0} == {
            "id": listed["id"],
            "cassette": "default",
            "route": "default",
            "method": "POST",
            "path": PATH,
            "elapsed_ms": 0,
            "state": "asking",
            "status": None,
            "bytes": 0,
            "chunks": 0,
            "index": None,
            "message": None,
        }
        answer.end()
    assert found.broker.recorder.under_way == {}


async def test_it_grows_while_it_is_followed_and_says_when_it_is_durable() -> None:
    async with growing() as (found, answer, listed):
        url = f"{found.admin}/api/v1/recordings/{listed['id']}/events"
        async with found.http.get(url) as stream:
            first = await next_event(stream)
            answer.say("Hello ", "wor")
            assert await until(stream, "Hello ") == "Hello "
            answer.say("ld, how ")
            assert await until(stream, "world, how ") == "world, how "
            answer.say("are you?")
            answer.end()
            last = await next_event(stream)
            while last["state"] in ("receiving", "storing"):
                last = await next_event(stream)
            rest = await stream.content.read()

    assert (first["state"], first["text"], first["new_chunks"]) == ("asking", None, [])
    assert (last["state"], last["index"], last["status"]) == ("durable", 0, 200)
    assert last["chunks"] == 5
    assert rest == b""


async def test_chunks_are_told_with_their_times() -> None:
    async with growing() as (found, answer, listed):
        url = f"{found.admin}/api/v1/recordings/{listed['id']}/events"
        answer.say("a ", "b ")
        async with found.http.get(url) as stream:
            answer.end()
            times: list[Any] = []
            while True:
                event = await next_event(stream)
                times += event["new_chunks"]
                if event["state"] == "durable":
                    break

    assert [at_ms for at_ms, _ in times] == [10.0, 20.0, 30.0]
    assert sum(size for _, size in times) == event["bytes"]


async def test_no_part_of_a_secret_is_shown_while_it_comes() -> None:
    shown = ""
    async with growing() as (found, answer, listed):
        url = f"{found.admin}/api/v1/recordings/{listed['id']}/events"
        async with found.http.get(url) as stream:
            answer.say("Your key: ")
            shown += await until(stream, "Your key: ")
            for at in range(0, len(KEY), 4):
                answer.say(KEY[at : at + 4])
                shown += json.dumps(await next_event(stream))
            answer.say(" keep it")
            answer.end()
            shown += (await stream.content.read()).decode()

    assert "REDACTED" in shown
    assert KEY not in shown
    assert KEY[:12] not in shown


async def test_a_call_that_fails_says_why() -> None:
    async with growing() as (found, answer, listed):
        url = f"{found.admin}/api/v1/recordings/{listed['id']}/events"
        async with found.http.get(url) as stream:
            answer.say("a ")
            answer.pieces.put_nowait(UpstreamError("it broke off", code="upstream_truncated"))
            events = (await stream.content.read()).decode()

    last = json.loads(events.rpartition("data: ")[2])
    told = "it broke off; --record-failures stores such failures"
    assert (last["state"], last["message"], last["index"]) == ("failed", told, None)


async def test_an_answer_that_is_not_to_be_recorded_is_passed_on() -> None:
    async with growing() as (found, answer, listed):
        answer.head = ResponseHead(500, "Oops", SSE, "chunked")
        url = f"{found.admin}/api/v1/recordings/{listed['id']}/events"
        async with found.http.get(url) as stream:
            answer.end()
            events = (await stream.content.read()).decode()

    assert json.loads(events.rpartition("data: ")[2])["state"] == "passed_on"


async def test_beyond_the_first_mebibyte_only_its_size_grows() -> None:
    async with growing() as (found, answer, listed):
        url = f"{found.admin}/api/v1/recordings/{listed['id']}/events"
        async with found.http.get(url) as stream:
            answer.say("x" * 700_000, "y" * 700_000)
            event = await next_event(stream)
            while event["bytes"] < 1_400_000:
                event = await next_event(stream)
            answer.end()
            await stream.content.read()

    assert event["cut"] is True
    assert event["text"] is None


@pytest.mark.parametrize("id", ["99", "x", "1" * 20])
async def test_what_is_not_under_way_is_404(open_world: World, id: str) -> None:
    response = await open_world.call("GET", f"/api/v1/recordings/{id}/events")

    assert response.status == 404
    assert (await response.json())["error"]["code"] == "no_recording"


async def test_a_recording_is_not_held_by_a_follower_that_left() -> None:
    async with growing() as (found, answer, listed):
        url = f"{found.admin}/api/v1/recordings/{listed['id']}/events"
        async with found.http.get(url) as stream:
            await next_event(stream)
            assert living(Follower) == 1
            stream.close()
        async with asyncio.timeout(30):
            while living(Follower):
                # It is noticed by the next write.
                answer.say("more ")
                await found.got("/api/v1/recordings")
        async with found.http.get(url) as stream:
            answer.end()
            await stream.content.read()

    assert living(Follower) == 0
