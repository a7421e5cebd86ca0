"""OpenAI's Responses API over WebSocket: lanes, warm-ups, steering."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import orjson

from tapeway.testing.answer import AnswerFault, fault_of
from tapeway.testing.openai import envelope
from tapeway.testing.openai.responses import NOT_FOUND, answered, events_of, numbered
from tapeway.testing.reply import InvalidToolResult, StandInState
from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    content_text,
    objects_at,
    parsed,
    text_at,
)

Send = Callable[[JsonObject], Awaitable[None]]
"""Sends an event. Raises ConnectionError once the client is gone."""

BreakOff = Callable[[AnswerFault], Awaitable[None]]
"""Ends the connection as the name of a model asks for."""

UNTIL_STEERED = "until steered"
_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_MOST_LANES = 32
_TOO_MANY = "This connection has used 32 stream identifiers already."


class ResponsesSocket:
    """One connection. The requests of a lane are answered in order, lanes beside each other."""

    def __init__(
        self, call: StandInRequest, state: StandInState, send: Send, break_off: BreakOff
    ) -> None:
        """`call` is the handshake."""
        self._call = call
        self._state = state
        self._send = send
        self._break_off = break_off
        self._kept: dict[str, JsonObject] = {}
        """The responses of this connection, including unstored ones."""
        self._lanes: dict[str | None, asyncio.Queue[JsonObject]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._steered: dict[str, asyncio.Queue[JsonObject]] = {}
        """The responses under way, each with the queue of steering messages."""
        self._lane_of: dict[str, str | None] = {}

    async def opened(self) -> None:
        """Nothing: the client speaks first."""

    async def received(self, data: bytes) -> None:
        """Take a message of the client."""
        asked = parsed(data)
        lane = at(asked, "stream_id")
        if text_at(asked, "type") == "response.steer":
            await self._steer(asked)
        elif text_at(asked, "type") != "response.create":
            await self._error(None, 400, "invalid_request_error", "Unknown message.")
        elif lane is not None and not (isinstance(lane, str) and _LANE.fullmatch(lane)):
            await self._error(None, 400, "invalid_stream_id", "Invalid 'stream_id'.")
        elif lane not in self._lanes and len(self._lanes.keys() - {None}) >= _MOST_LANES:
            await self._error(None, 400, "websocket_stream_limit_reached", _TOO_MANY)
        else:
            self._queue(lane).put_nowait(asked)

    async def closed(self) -> None:
        """Stop answering."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _queue(self, lane: str | None) -> "asyncio.Queue[JsonObject]":
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = asyncio.Queue()
            task = asyncio.get_running_loop().create_task(self._answer_lane(lane, queue))
            self._tasks.add(task)
        return queue

    async def _answer_lane(self, lane: str | None, queue: "asyncio.Queue[JsonObject]") -> None:
        try:
            while True:
                await self._answer(lane, await queue.get())
        except ConnectionError:
            return

    async def _answer(self, lane: str | None, asked: JsonObject) -> None:
        call = replace(self._call, method="POST", body=orjson.dumps(asked), json=asked)
        previous = text_at(asked, "previous_response_id")
        before = self._kept.get(previous) or self._state.documents.get(previous)
        if previous and before is None:
            message = NOT_FOUND.format(previous)
            await self._error(lane, 400, "previous_response_not_found", message)
            return
        if call.requested_error:
            await self._failure(lane, call.requested_error)
            return
        try:
            response, kept = answered(call, self._state, before)
        except InvalidToolResult as refused:
            await self._error(lane, 400, "invalid_request_error", str(refused))
            return
        await self._stream(lane, call, response, kept)

    async def _stream(
        self, lane: str | None, call: StandInRequest, response: JsonObject, kept: JsonObject
    ) -> None:
        name = text_at(response, "id")
        self._kept[name], self._lane_of[name] = kept, lane
        if at(call.json, "store") is not False:
            self._state.documents[name] = kept
        self._steered[name] = asyncio.Queue()
        events = list(numbered(events_of(response)))
        fault = fault_of(call)
        cut = len(events) // 2 if fault is not None else len(events)
        is_steered = UNTIL_STEERED in _last_prompt(call.json)
        for event in events[: cut // 2] if is_steered else events[:cut]:
            await self._send(_in_lane(event, lane))
        if is_steered:
            await self._go_on_steered(lane, call, response, cut // 2)
            return
        if fault is not None:
            await self._break_off(fault)
        del self._steered[name]

    async def _go_on_steered(
        self, lane: str | None, call: StandInRequest, response: JsonObject, number: int
    ) -> None:
        name = text_at(response, "id")
        steer = await self._steered[name].get()
        del self._steered[name]
        details: JsonObject = {"reason": "steered"}
        ended = response | {"status": "incomplete", "incomplete_details": details, "output": []}
        self._kept[name] = {"conversation": _input_items(call.json), "response": ended}
        last: JsonObject = {"type": "response.incomplete", "sequence_number": number}
        await self._send(_in_lane(last | {"response": ended}, lane))
        more = {"input": steer["input"], "previous_response_id": name}
        await self._answer(lane, {**call.json, **more})

    async def _steer(self, asked: JsonObject) -> None:
        parent = text_at(asked, "previous_response_id")
        lane = self._lane_of.get(parent)
        steer: JsonObject = {"previous_response_id": parent}
        if parent in self._steered:
            steer["id"] = self._state.new_id("steer_")
            event: JsonObject = {"type": "response.steer.accepted", "sequence_number": 0}
            await self._send(_in_lane(event | {"steer": steer}, lane))
            self._steered[parent].put_nowait(asked)
            return
        why = "response_already_completed" if parent in self._kept else "response_not_found"
        error: JsonObject = {"type": "invalid_request_error", "code": why, "message": why}
        event = {"type": "response.steer.failed", "sequence_number": 0, "error": error}
        steer["input"] = asked.get("input")
        await self._send(_in_lane(event | {"steer": steer}, lane))

    async def _failure(self, lane: str | None, status: int) -> None:
        error = envelope.error_body(status)["error"]
        event: JsonObject = {"type": "error", "status": status, "error": error}
        await self._send(_in_lane(event, lane))

    async def _error(self, lane: str | None, status: int, code: str, message: str) -> None:
        kind = "invalid_request_error"
        error: JsonObject = {"type": kind, "code": code, "message": message, "param": None}
        event: JsonObject = {"type": "error", "status": status, "error": error}
        await self._send(_in_lane(event, lane))


def _in_lane(event: JsonObject, lane: str | None) -> JsonObject:
    return event if lane is None else event | {"stream_id": lane}


def _input_items(body: JsonObject) -> list[object]:
    words = text_at(body, "input")
    return [{"role": "user", "content": words}] if words else [*objects_at(body, "input")]


def _last_prompt(body: JsonObject) -> str:
    items: Iterator[JsonObject] = objects_at({"items": _input_items(body)}, "items")
    return next((content_text(item) for item in [*items][::-1]), "")
