"""Event streams of JSON-RPC messages, as MCP's streamable HTTP has them.

A server may ask the client something in the middle of its response (elicitation, sampling, roots),
and waits for the answer, which is a separate request. Such a stream cannot be held back until
the end: the client has to see the question first. Only the response must wait for the recording,
because clients take the response for the end.
"""

import re
from dataclasses import dataclass

from tapeway.core.http.content_codings import content_coding
from tapeway.core.http.headers import find_header, media_type, request_fields
from tapeway.core.json_text import json_object, peek_json
from tapeway.core.model.messages import Request, ResponseHead
from tapeway.core.streams import sse
from tapeway.core.streams.end_marks import MAX_EVENT

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_END = 4
_BEGINNING = 1024
"""JSON-RPC messages name the protocol near the beginning."""


def may_be_json_rpc(request: Request) -> bool:
    """Whether the response to a request may be a stream of JSON-RPC messages."""
    if request_fields(request.headers).is_mcp:
        return True
    return request.body.find(b'"jsonrpc"', 0, _BEGINNING) >= 0


def answers_a_question(method: str, body: bytes) -> bool:
    """Whether a request is a client's answer to a service's question."""
    if method != "POST" or body.find(b'"jsonrpc"', 0, _BEGINNING) < 0:
        return False
    if b'"result"' not in body and b'"error"' not in body:
        return False
    message = json_object(body)
    return message is not None and "method" not in message


def message_scanner(request: Request, head: ResponseHead) -> "MessageScanner | None":
    """The scanner for a response, None where it is no readable stream of JSON-RPC messages."""
    content_type = find_header(head.headers, b"content-type") or b""
    if media_type(content_type) != sse.MEDIA_TYPE or content_coding(head.headers):
        return None
    return MessageScanner() if may_be_json_rpc(request) else None


@dataclass(slots=True)
class MessageScanner:
    """Searches a stream for the messages that a client must see before the stream ends.

    `releasable` is how many bytes lead up to the end of the last request or notification;
    `asks_client` is whether there was a request.
    """

    releasable: int = 0
    asks_client: bool = False
    _rest: bytes = b""
    _start: int = 0

    def feed(self, data: bytes) -> None:
        """Look at the next piece."""
        searched = max(0, len(self._rest) - _LONGEST_END)
        self._rest += data
        read = 0
        for event_end in _EVENT_END.finditer(self._rest, searched):
            self._look_at(self._rest[read : event_end.start()], self._start + event_end.end())
            read = event_end.end()
        if len(self._rest) - read > MAX_EVENT:
            # No question is that long.
            read = len(self._rest)
        self._rest, self._start = self._rest[read:], self._start + read

    def _look_at(self, event: bytes, end: int) -> None:
        for data in sse.event_data(event):
            if b'"method"' not in data:
                continue
            message = peek_json(data)
            messages = message if isinstance(message, list) else [message]
            calls = [
                member for member in messages if isinstance(member, dict) and "method" in member
            ]
            if calls and len(calls) == len(messages):
                self.releasable = end
                self.asks_client |= any("id" in call for call in calls)
