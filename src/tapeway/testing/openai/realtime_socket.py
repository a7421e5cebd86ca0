"""OpenAI's Realtime API: sessions with text, tools and audio (PCM of 24 kHz, 16 bits, mono)."""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import orjson

from tapeway.testing.reply import (
    Conversation,
    PendingTurn,
    Reply,
    StandInState,
    pieces,
    reply_to,
    slices,
    tools_of,
)
from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    list_at,
    objects_at,
    text_at,
)

_SECOND = 48_000
"""Bytes of a second of audio."""

_DELTA = 4_800
_FORMAT: JsonObject = {"type": "audio/pcm", "rate": 24000}


class RealtimeSocket:
    """One session. With `server_vad` each second of audio is taken for something said."""

    def __init__(
        self,
        call: StandInRequest,
        state: StandInState,
        send: Callable[[JsonObject], Awaitable[None]],
    ) -> None:
        """`call` is the handshake."""
        self._call = call
        self._state = state
        self._send_event = send
        self._session = _session(call, state)
        self._items: list[JsonObject] = []
        self._audio = b""
        self._numbers = count(1)

    async def opened(self) -> None:
        """Speak first."""
        await self._send("session.created", session=self._session)

    async def closed(self) -> None:
        """Nothing goes on."""

    async def received(self, data: bytes) -> None:
        """Take an event of the client."""
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            event = None
        if not isinstance(event, dict):
            await self._error({}, "invalid_json", "The event is no JSON object.")
            return
        match text_at(event, "type"):
            case "session.update":
                given = at(event, "session")
                self._session |= given if isinstance(given, dict) else {}
                await self._send("session.updated", session=self._session)
            case "input_audio_buffer.append":
                await self._append(event)
            case "input_audio_buffer.commit":
                await self._commit(event)
            case "input_audio_buffer.clear":
                self._audio = b""
                await self._send("input_audio_buffer.cleared")
            case "conversation.item.create":
                given = at(event, "item")
                await self._add(given if isinstance(given, dict) else {})
            case "conversation.item.retrieve" | "conversation.item.delete" as kind:
                await self._find(event, kind)
            case "conversation.item.truncate":
                place = {name: event.get(name) for name in ("item_id", "content_index")}
                heard = event.get("audio_end_ms")
                await self._send("conversation.item.truncated", **place, audio_end_ms=heard)
            case "response.create":
                await self._respond(event)
            case "response.cancel":
                message = "Cancellation failed: no active response found"
                await self._error(event, "response_cancel_not_active", message)
            case unknown:
                await self._error(event, "invalid_value", f"Invalid value: '{unknown}'.")

    async def _append(self, event: JsonObject) -> None:
        speech = text_at(self._session, "audio", "input", "turn_detection", "type") == "server_vad"
        if speech and not self._audio:
            await self._send("input_audio_buffer.speech_started", audio_start_ms=0)
        self._audio += base64.b64decode(text_at(event, "audio"))
        if speech and len(self._audio) >= _SECOND:
            await self._send("input_audio_buffer.speech_stopped", audio_end_ms=1000)
            await self._commit(event)
            await self._respond({})

    async def _commit(self, event: JsonObject) -> None:
        if not self._audio:
            message = "Error committing input audio buffer: buffer too small."
            await self._error(event, "input_audio_buffer_commit_empty", message)
            return
        heard = f"{len(self._audio)} bytes of {hashlib.sha256(self._audio).hexdigest()[:8]}"
        self._audio = b""
        name = self._state.new_id("item_", 21)
        before = self._last_item()
        await self._send("input_audio_buffer.committed", item_id=name, previous_item_id=before)
        spoken: JsonObject = {"type": "input_audio", "transcript": heard}
        item: JsonObject = {"id": name, "type": "message", "role": "user", "content": [spoken]}
        await self._add(item)

    async def _add(self, given: JsonObject) -> None:
        item = {"object": "realtime.item", "status": "completed"} | given
        item.setdefault("id", self._state.new_id("item_", 21))
        before = self._last_item()
        self._items.append(item)
        await self._send("conversation.item.added", previous_item_id=before, item=item)
        await self._send("conversation.item.done", previous_item_id=before, item=item)

    async def _find(self, event: JsonObject, kind: str) -> None:
        name = text_at(event, "item_id")
        named = next((item for item in self._items if item["id"] == name), None)
        if named is None:
            await self._error(event, "item_not_found", f"There is no item '{name}'.")
        elif kind.endswith("retrieve"):
            await self._send("conversation.item.retrieved", item=named)
        else:
            self._items.remove(named)
            await self._send("conversation.item.deleted", item_id=name)

    async def _respond(self, event: JsonObject) -> None:
        given = at(event, "response")
        config = self._session | (given if isinstance(given, dict) else {})
        name = self._state.new_id("resp_", 21)
        response: JsonObject = {
            "object": "realtime.response",
            "id": name,
            "status": "in_progress",
            "output": [],
            "conversation_id": "conv_standin",
            "output_modalities": config["output_modalities"],
            "metadata": at(config, "metadata"),
            "usage": None,
        }
        await self._send("response.created", response=response)
        reply = reply_to(self._call, _turn(config, self._items))
        output = [*_output(reply, self._state, _is_spoken(config))]
        for index, item in enumerate(output):
            await self._item(item, {"response_id": name, "output_index": index})
        usage = {"total_tokens": reply.tokens, "input_tokens": 0, "output_tokens": reply.tokens}
        done = response | {"status": "completed", "output": output, "usage": usage}
        await self._send("response.done", response=done)
        limits: JsonObject = {"name": "tokens", "limit": 40000, "remaining": 39999}
        await self._send("rate_limits.updated", rate_limits=[limits | {"reset_seconds": 0.1}])

    async def _item(self, item: JsonObject, where: JsonObject) -> None:
        before = self._last_item()
        begun = item | {"status": "in_progress"} | ({"content": []} if "content" in item else {})
        await self._send("response.output_item.added", **where, item=begun)
        await self._send("conversation.item.added", previous_item_id=before, item=begun)
        place = where | {"item_id": item["id"]}
        if text_at(item, "type") == "function_call":
            await self._function_call(item, place)
        else:
            await self._message(item, place | {"content_index": 0})
        self._items.append(item)
        await self._send("response.output_item.done", **where, item=item)
        await self._send("conversation.item.done", previous_item_id=before, item=item)

    async def _function_call(self, item: JsonObject, place: JsonObject) -> None:
        kind, arguments = "response.function_call_arguments", text_at(item, "arguments")
        place |= {"call_id": item["call_id"]}
        for part in slices(arguments):
            await self._send(f"{kind}.delta", **place, delta=part)
        await self._send(f"{kind}.done", **place, name=item["name"], arguments=arguments)

    async def _message(self, item: JsonObject, place: JsonObject) -> None:
        part = at(item, "content", 0)
        spoken = text_at(part, "type") == "output_audio"
        text = text_at(part, "transcript" if spoken else "text")
        empty: JsonObject = {"type": "audio" if spoken else "text"}
        await self._send("response.content_part.added", **place, part=empty)
        kind = "response.output_audio_transcript" if spoken else "response.output_text"
        for piece in pieces(text):
            await self._send(f"{kind}.delta", **place, delta=piece)
            if spoken:
                sound = base64.b64encode(voice(piece)).decode()
                await self._send("response.output_audio.delta", **place, delta=sound)
        if spoken:
            await self._send("response.output_audio.done", **place)
            await self._send(f"{kind}.done", **place, transcript=text)
        else:
            await self._send(f"{kind}.done", **place, text=text)
        await self._send("response.content_part.done", **place, part=part)

    async def _error(self, event: JsonObject, code: str, message: str) -> None:
        kind = "invalid_request_error"
        error: JsonObject = {"type": kind, "code": code, "message": message, "param": None}
        await self._send("error", error=error | {"event_id": event.get("event_id")})

    async def _send(self, kind: str, **more: object) -> None:
        event: JsonObject = {"type": kind, "event_id": self._state.new_id("event_", 21)}
        await self._send_event(event | more)

    def _last_item(self) -> str | None:
        return text_at(self._items[-1], "id") if self._items else None


def voice(text: str) -> bytes:
    """The sound of a text: the same for the same text."""
    return hashlib.shake_256(text.encode()).digest(_DELTA)


def _session(call: StandInRequest, state: StandInState) -> JsonObject:
    audio: JsonObject = {
        "input": {"format": _FORMAT, "turn_detection": None, "transcription": None},
        "output": {"format": _FORMAT, "voice": "marin", "speed": 1.0},
    }
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": state.new_id("sess_", 21),
        "model": call.query.get("model", "gpt-realtime"),
        "output_modalities": ["audio"],
        "instructions": "",
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "audio": audio,
        "expires_at": state.seconds() + 1800,
    }


def _is_spoken(config: JsonObject) -> bool:
    return "audio" in list_at(config, "output_modalities")


def _turn(config: JsonObject, items: list[JsonObject]) -> PendingTurn:
    conversation = Conversation()
    for item in items:
        if text_at(item, "role") == "user":
            parts = [*objects_at(item, "content")]
            words = [text_at(part, "text") or text_at(part, "transcript") for part in parts]
            conversation.said("".join(words))
        elif text_at(item, "type") == "function_call_output":
            conversation.answered(text_at(item, "call_id"), text_at(item, "output"))
    offered = () if at(config, "tool_choice") == "none" else objects_at(config, "tools")
    return conversation.turn(tools_of(offered, "parameters"))


def _output(reply: Reply, state: StandInState, spoken: bool) -> Iterator[JsonObject]:
    for wanted in reply.calls:
        yield {
            "id": state.new_id("item_", 21),
            "object": "realtime.item",
            "type": "function_call",
            "status": "completed",
            "name": wanted.name,
            "call_id": state.new_id("call_", 16),
            "arguments": orjson.dumps(wanted.arguments).decode(),
        }
    if not reply.calls:
        part: JsonObject = {"type": "output_text", "text": reply.text}
        if spoken:
            part = {"type": "output_audio", "transcript": reply.text}
        yield {
            "id": state.new_id("item_", 21),
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
