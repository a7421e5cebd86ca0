"""OpenAI's Responses API over WebSocket: `stream_id` is the lane, a `response.create` asks.

The content of a request is that of `POST /v1/responses` plus `generate` (false for a warm-up). A
`response.steer` goes into the answer under way, and is no turn.
"""

import re
from collections.abc import Mapping

import orjson

from tapeway.core.json_members import member_text, with_member, without_members
from tapeway.core.json_text import Json, json_object
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import (
    DEFAULT_LANE,
    PLAIN_ANSWER,
    AnswerMessage,
    End,
    Sent,
    TurnRequest,
)

_NOT_ASKED = ("client_metadata", "prompt_cache_key", "stream", "stream_id")
"""Members that name the lane of an answer or the caller. Clients draw the values at random."""

_ENDS: Mapping[str, End] = {
    "response.completed": "end",
    "response.incomplete": "end",
    "response.failed": "error",
    "response.error": "error",
    "error": "error",
}
_STEER = "response.steer"
_PLAIN = re.compile(rb'\{"type": ?"response\.(?!steer\.)[a-z_]+(?:\.[a-z_]+)+"')
"""The beginning of an event in the middle of a response, such as a delta."""


class OpenAIResponses:
    """The protocol; see `core.websocket.request_protocol.RequestProtocol`."""

    name = "openai-responses"
    lanes_last = True

    def read_sent(self, message: WebSocketMessage) -> Sent:
        """Every message of a client asks: what the service does not know gets an `error`."""
        data = message.data
        value = json_object(data)
        if value is None:
            return TurnRequest(data)
        content = without_members(data, _NOT_ASKED)
        parent = _text(value.get("previous_response_id"))
        if value.get("type") == _STEER:
            # It has no lane of its own.
            return TurnRequest(content, None, parent, joins=True)
        lane = DEFAULT_LANE
        if value.get("stream_id") is not None:
            lane = member_text(data, "stream_id") or DEFAULT_LANE
        return TurnRequest(content, lane, parent)

    def read_answer(self, message: WebSocketMessage) -> AnswerMessage | None:
        """The end of a response, or an error, ends the turn of its lane."""
        data = message.data
        # A name may be written with escapes. `in` would make an error message, and forget it, before
        # it searches bytes for bytes.
        names_lane = data.find(b"stream_id") >= 0 or data.find(b"\\u00") >= 0
        if not names_lane and _PLAIN.match(data):
            return PLAIN_ANSWER
        value = json_object(data)
        if value is None:
            return AnswerMessage()
        kind = _text(value.get("type"))
        named = value.get("stream_id")
        lane = None if named is None else member_text(data, "stream_id")
        if kind.startswith(f"{_STEER}."):
            return None
        if kind != "error" and lane is None:
            # Events of the default lane name none; an error without a lane may be anybody's.
            lane = DEFAULT_LANE
        response = value.get("response")
        if not isinstance(response, dict):
            return AnswerMessage(lane, _ENDS.get(kind, ""))
        issued = _text(response.get("id")) if kind == "response.created" else ""
        return AnswerMessage(lane, _ENDS.get(kind, ""), issued)

    def echoed(
        self, message: WebSocketMessage, recorded_lane: bytes, asked_lane: bytes
    ) -> WebSocketMessage:
        """The `stream_id` of the asking request, if any."""
        data = message.data
        value = json_object(data)
        if recorded_lane == asked_lane or value is None:
            return message
        if recorded_lane and "stream_id" not in value:
            # An event about the connection, in the middle of the answer or after its end.
            return message
        if asked_lane:
            return WebSocketMessage(with_member(data, "stream_id", asked_lane), message.binary)
        return WebSocketMessage(without_members(data, ("stream_id",)), message.binary)

    def error_message(
        self, lane: bytes, code: str, text: str, status: int = 400
    ) -> WebSocketMessage | None:
        """An `error` event: with any other status than 400 Codex asks seven times."""
        error = {"type": code, "code": code, "message": text, "param": None}
        event: dict[str, object] = {"type": "error", "status": status, "error": error}
        if lane:
            event["stream_id"] = orjson.Fragment(lane)
        return WebSocketMessage(orjson.dumps(event))


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
