"""JSON-RPC 2.0 over WebSocket (https://www.jsonrpc.org/specification): the `id` is the lane.

A batch is one request. The lane of a batch lists the `id` of each call in order. The stored content
has positions in place of these values. A notification of the client has no answer. A notification
or call of the service belongs to the turn whose request came last.
"""

from collections.abc import Mapping

import orjson

from tapeway.core.json_members import elements, member_text, with_member, without_members
from tapeway.core.json_rpc import AskedNames, is_answer, is_call, is_message, name_key, renamed
from tapeway.core.json_text import Json, json_object, peek_json
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import AnswerMessage, Sent, TurnRequest

_VERSION = "2.0"
_SERVER_ERROR = -32000
"""The first error code for use by implementations."""


def is_json_rpc(data: bytes) -> bool:
    """Whether a message is JSON-RPC 2.0."""
    return b'"jsonrpc"' in data and is_message(peek_json(data))


class JsonRpc:
    """The protocol; see `request_protocol.RequestProtocol`."""

    name = "json-rpc"
    lanes_last = False

    def read_sent(self, message: WebSocketMessage) -> Sent:
        """A call is a request; a notification or an answer to the service is none."""
        data = message.data
        if (call := json_object(data)) is not None:
            if not is_call(call):
                return None
            return TurnRequest(without_members(data, ("id",)), member_text(data, "id") or b"null")
        batch = _batch(data)
        lanes = [_lane(text) for text, member in batch if is_call(member)]
        if not lanes:
            return None
        calls: list[bytes] = []
        number = 0
        for text, member in batch:
            if is_call(member):
                calls.append(with_member(text, "id", b"%d" % number))
                number += 1
            else:
                calls.append(text)
        return TurnRequest(b"[" + b",".join(calls) + b"]", b"[" + b",".join(lanes) + b"]")

    def read_answer(self, message: WebSocketMessage) -> AnswerMessage | None:
        """A result or error ends the turn of its `id`."""
        data = message.data
        if (value := json_object(data)) is not None:
            if not is_answer(value):
                return AnswerMessage()
            lane = None if value["id"] is None else member_text(data, "id")
            return AnswerMessage(lane, "error" if "error" in value else "end")
        answers = [(text, member) for text, member in _batch(data) if is_answer(member)]
        if not answers:
            return AnswerMessage()
        failed = all("error" in answer for _, answer in answers)
        lane = b"[" + b",".join([_lane(text) for text, _ in answers]) + b"]"
        return AnswerMessage(lane, "error" if failed else "end")

    def echoed(
        self, message: WebSocketMessage, recorded_lane: bytes, asked_lane: bytes
    ) -> WebSocketMessage:
        """Replace each recorded `id` by the `id` at the same place in the current request."""
        if recorded_lane == asked_lane:
            return message
        recorded, asked = _ids(recorded_lane), _ids(asked_lane)
        ids = {name_key(before): now for before, now in zip(recorded, asked, strict=False)}
        return WebSocketMessage(renamed(message.data, AskedNames(ids)), message.binary)

    def error_message(
        self, lane: bytes, code: str, text: str, status: int = 400
    ) -> WebSocketMessage | None:
        """An error object; in a batch, an error object for every call."""
        error: dict[str, Json] = {
            "code": _SERVER_ERROR,
            "message": text,
            "data": {"type": code, "code": code, "status": status},
        }
        ids = elements(lane)
        written = [
            orjson.dumps({"jsonrpc": _VERSION, "id": orjson.Fragment(call_id), "error": error})
            for call_id in ([lane or b"null"] if ids is None else ids)
        ]
        return WebSocketMessage(written[0] if ids is None else b"[" + b",".join(written) + b"]")


def _batch(data: bytes) -> list[tuple[bytes, Mapping[str, Json]]]:
    """Text and value of each member of a batch; empty for a message without a batch."""
    members = [(text, json_object(text)) for text in elements(data) or ()]
    return [(text, member) for text, member in members if member is not None]


def _lane(text: bytes) -> bytes:
    return member_text(text, "id") or b"null"


def _ids(lane: bytes) -> list[bytes]:
    return [lane] if (ids := elements(lane)) is None else ids
