"""Event streams of JSON-RPC messages, as MCP's streamable HTTP has them.

A server may ask the client something in the middle of its response (elicitation, sampling, roots),
and waits for the answer, which is a separate request. Such a stream cannot be held back until
the end: the client has to see the question first. Only the response must wait for the recording,
because clients take the response for the end.
"""

from tapeway.core.http.content_codings import content_coding
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import json_object, peek_json
from tapeway.core.model.messages import Request, ResponseHead
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.events import SSE, SseEvents

_BEGINNING = 1024
"""JSON-RPC messages name the protocol near the beginning."""


def may_be_json_rpc(request: Request) -> bool:
    """Whether the response to a request may be a stream of JSON-RPC messages."""
    if request.fields.is_mcp:
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
    if media_type(content_type) != SSE or content_coding(head.headers):
        return None
    return MessageScanner() if may_be_json_rpc(request) else None


class MessageScanner:
    """Searches a stream for the messages that a client must see before the stream ends.

    `releasable` is how many bytes lead up to what follows the last request or notification, if that
    is an event; `asks_client` is whether there was a request.
    """

    def __init__(self) -> None:
        self.releasable = 0
        self.asks_client = False
        self._reader = SseEvents()
        self._is_open = False
        """Whether the last event was a request or a notification."""

    def feed(self, data: bytes) -> None:
        """Look at the next piece."""
        for event in self._reader.feed(data):
            self._release(event.start)
            self._is_open = self._is_call(event.data)
        begun = self._reader.begun
        self._release(self._reader.size if begun is None else begun.start)

    def _release(self, place: int) -> None:
        if self._is_open:
            self.releasable = place

    def _is_call(self, data: bytes) -> bool:
        message = peek_json(data) if b'"method"' in data else None
        messages = message if isinstance(message, list) else [message]
        calls = [member for member in messages if isinstance(member, dict) and "method" in member]
        if not calls or len(calls) < len(messages):
            return False
        self.asks_client |= any("id" in call for call in calls)
        return True
