"""Sessions with equal beginnings whose services greet at different times."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection

from tests.server.websocket.session_program import Program, heard, ran, recorded, said, tell
from tests.server.websocket.websocket_service import Handler

_REALTIME = "/v1/realtime?model=gpt-realtime"
_UPDATE = {"type": "session.update", "session": {"type": "realtime"}}


def _realtime(*waits: Sequence[int]) -> Handler:
    """A little of Realtime. `waits` has, for each connection, how many messages precede a greeting."""
    numbers: Iterator[int] = count()

    async def answer(socket: web.WebSocketResponse) -> None:
        number = next(numbers)
        left, got, question = [*waits[number]], 0, ""
        events: list[dict[str, Any]] = []
        while True:
            while left and left[0] <= got:
                left.pop(0)
                await socket.send_json(
                    {"type": "greeting", "event_id": f"event_{number}a1b2c3{len(left)}"}
                )
            if not left:
                for event in events:
                    await socket.send_json(event)
                events.clear()
            if (message := await heard(socket)) is None:
                return
            got, value = got + 1, json.loads(message)
            if value["type"] == "ask":
                question = value["text"]
            elif value["type"] == "response.create":
                events.append({"type": "told", "text": f"hello {question}"})

    return answer


def _asks(question: str, greetings: int = 1, *, waits: int) -> Program:
    """Ask a question after so many of the greetings; return the answer."""

    async def program(client: ClientConnection) -> Any:
        for _ in range(waits):
            assert (await said(client))["type"] == "greeting"
        greeted = waits
        await tell(client, _UPDATE, {"type": "ask", "text": question}, {"type": "response.create"})
        while (value := await said(client))["type"] == "greeting":
            greeted += 1
        assert greeted == greetings
        return value["text"]

    return program


@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize("late", [0, 1])
async def test_the_question_chooses_the_session_whenever_the_service_has_greeted(
    late: int, waits: int
) -> None:
    greets = [[3] if at == late else [0] for at in range(2)]
    programs = [_asks(text, waits=int(at != late)) for at, text in enumerate(("one", "two"))]
    async with recorded(_realtime(*greets), *programs, path=_REALTIME) as proxy:
        for questions in (("one", "two"), ("two", "one")):
            for question in questions:
                answer = await ran(proxy, _asks(question, waits=waits), _REALTIME)
                assert answer == f"hello {question}"


async def test_a_service_may_have_said_one_greeting_early_and_one_late() -> None:
    programs = [_asks("one", 2, waits=2), _asks("two", 2, waits=1)]
    async with recorded(_realtime([0, 0], [0, 2]), *programs, path=_REALTIME) as proxy:
        for question in ("one", "two", "one"):
            answer = await ran(proxy, _asks(question, 2, waits=1), _REALTIME)
            assert answer == f"hello {question}"


async def test_two_clients_side_by_side_each_get_the_session_of_their_question() -> None:
    programs = [_asks("one", waits=0), _asks("two", waits=1)]
    async with recorded(_realtime([3], [0]), *programs, path=_REALTIME) as proxy:
        answers = await asyncio.gather(
            *(ran(proxy, _asks(question, waits=1), _REALTIME) for question in ("two", "one"))
        )
        assert answers == ["hello two", "hello one"]
        # The journal names the session that has answered.
        names = {entry.interaction for entry in proxy.journal if entry.outcome == "replayed"}
        assert names == {0, 1}


async def test_a_client_may_name_the_session_that_the_greeting_has_opened() -> None:
    numbers = count(1)

    async def answer(socket: web.WebSocketResponse) -> None:
        session = f"sess_{next(numbers)}a2b3c4d5"
        await socket.send_json({"type": "opened", "session": session})
        while (message := await heard(socket)) is not None:
            value = json.loads(message)
            assert value["session"] == session
            await socket.send_json({"session": session, "told": value.get("text", "")})

    def asks(question: str) -> Program:
        async def program(client: ClientConnection) -> Any:
            session = (await said(client))["session"]
            await tell(client, {"type": "join", "session": session})
            assert await said(client) == {"session": session, "told": ""}
            await tell(client, {"type": "ask", "session": session, "text": question})
            told = await said(client)
            assert told["session"] == session
            return told["told"]

        return program

    async with recorded(answer, asks("one"), asks("two")) as proxy:
        assert [await ran(proxy, asks(text)) for text in ("two", "one")] == ["two", "one"]


async def test_a_greeting_of_text_may_come_at_any_time_too() -> None:
    numbers = count()

    async def answer(socket: web.WebSocketResponse) -> None:
        is_late = next(numbers) == 0
        if not is_late:
            await socket.send_str("220 ready")
        while (message := await heard(socket)) is not None:
            assert isinstance(message, str)
            if is_late and message.startswith("get"):
                await socket.send_str("220 ready")
            if message.startswith("get"):
                await socket.send_str(f"250 {message}")

    def asks(name: str, *, waits: bool) -> Program:
        async def program(client: ClientConnection) -> Any:
            if waits:
                assert await said(client) == "220 ready"
            await client.send("hello")
            await client.send(f"get {name}")
            if not waits:
                assert await said(client) == "220 ready"
            return await said(client)

        return program

    async with recorded(answer, asks("a", waits=False), asks("b", waits=True)) as proxy:
        for name in "aba":
            assert await ran(proxy, asks(name, waits=True)) == f"250 get {name}"
