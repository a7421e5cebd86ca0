"""GraphQL over WebSocket: the subprotocol `graphql-transport-ws` and the older `graphql-ws`.

The `id` is the lane. The payload of `connection_init` plays the part of a request's headers: the
proxy passes the payload on, and neither stores nor compares it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

from tapeway.core.json_members import member_text, with_member, without_members
from tapeway.core.json_text import Json, json_object
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import (
    DEFAULT_LANE,
    AnswerMessage,
    Cancelled,
    LocalReply,
    Sent,
    TurnRequest,
)

_INIT = "connection_init"
_INIT_CONTENT = orjson.dumps({"type": _INIT})
_FIRST_ANSWERS = {"connection_ack": "end", "connection_error": "error"}
_NO_SYNTAX = re.compile(r'"""(?:\\"""|[^"]|"(?!""))*"""|"(?:\\.|[^"\\\n])*"|#[^\n]*')
"""Matches strings and comments of a document."""
_OPERATION = re.compile(r"\b(query|mutation|subscription|fragment)\b[ \t\r\n,]*(\w*)")
_SIGNS_OF_LIFE = frozenset({"ping", "pong", "ka"})


@dataclass(frozen=True, slots=True)
class GraphQL:
    """The protocol with the names of one subprotocol; see `request_protocol.RequestProtocol`."""

    name: str
    asks: str
    """The message type of a request."""
    stops: str
    """The message type by which the client cancels an operation."""
    is_older: bool = False
    lanes_last: bool = field(default=False, init=False)

    def read_sent(self, message: WebSocketMessage) -> Sent:
        """An operation is a request, and so is `connection_init`."""
        kind = _type(message)
        lane = member_text(message.data, "id") or DEFAULT_LANE
        if kind == self.asks:
            content = without_members(message.data, ("id",))
            return TurnRequest(content, lane, subscribes=_subscribes(message))
        if kind == _INIT:
            return TurnRequest(_INIT_CONTENT, fields=tuple(_fields(json_object(message.data))))
        if kind == self.stops:
            return Cancelled(lane)
        if kind == "ping":
            return LocalReply(WebSocketMessage(b'{"type":"pong"}'))
        return None

    def read_answer(self, message: WebSocketMessage) -> AnswerMessage | None:
        """`complete` and `error` end the turn of their `id`."""
        kind = _type(message)
        if kind in _SIGNS_OF_LIFE:
            return None
        if kind in _FIRST_ANSWERS:
            return AnswerMessage(DEFAULT_LANE, "end" if kind == "connection_ack" else "error")
        lane = member_text(message.data, "id")
        if kind == "complete":
            return AnswerMessage(lane, "end")
        # The older subprotocol still sends `complete` after an error inside an operation.
        return AnswerMessage(lane, "error" if kind == "error" else "")

    def echoed(
        self, message: WebSocketMessage, recorded_lane: bytes, asked_lane: bytes
    ) -> WebSocketMessage:
        """Replace the `id` of the recorded request by the `id` of the current request."""
        if recorded_lane == asked_lane or member_text(message.data, "id") is None:
            return message
        return WebSocketMessage(with_member(message.data, "id", asked_lane), message.binary)

    def error_message(
        self, lane: bytes, code: str, text: str, status: int = 400
    ) -> WebSocketMessage | None:
        """A GraphQL error; None without a lane, as for `connection_init`."""
        if not lane:
            return None
        error = {"message": text, "extensions": {"code": code, "type": code, "status": status}}
        payload = error if self.is_older else [error]
        said = {"id": orjson.Fragment(lane), "type": "error", "payload": payload}
        return WebSocketMessage(orjson.dumps(said))


def _fields(value: Json, name: str = "") -> Iterator[tuple[bytes, bytes]]:
    """Each text in a payload as a header field of the name nearest to it."""
    if isinstance(value, dict):
        for inner, member in value.items():
            yield from _fields(member, inner)
    elif isinstance(value, list):
        for item in value:
            yield from _fields(item, name)
    elif isinstance(value, str):
        yield name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass")


def _subscribes(message: WebSocketMessage) -> bool:
    """Whether the chosen operation is a subscription; a document may have several operations."""
    payload = (json_object(message.data) or {}).get("payload")
    if not isinstance(payload, dict):
        return False
    query, name = payload.get("query"), payload.get("operationName")
    if not isinstance(query, str) or "subscription" not in query:
        return False
    operations = _OPERATION.findall(_outermost(query))
    if isinstance(name, str) and name:
        return ("subscription", name) in operations
    return any(kind == "subscription" for kind, _ in operations)


def _outermost(query: str) -> str:
    """The text of a document outside all brackets."""
    depth = 0
    kept: list[str] = []
    for character in _NO_SYNTAX.sub(" ", query):
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
        if not depth:
            kept.append(character)
    return "".join(kept)


def _type(message: WebSocketMessage) -> str:
    value = json_object(message.data)
    kind = value.get("type") if value is not None else None
    return kind if isinstance(kind, str) else ""


GRAPHQL_TRANSPORT_WS = GraphQL("graphql-transport-ws", asks="subscribe", stops="complete")
GRAPHQL_WS = GraphQL("graphql-ws", asks="start", stops="stop", is_older=True)
