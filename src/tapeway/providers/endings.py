"""How each provider's streams say that they have ended.

The rows follow the providers' documents and what their recorded streams hold; where neither is
certain there is no row, since an answer that is whole must not be taken for half of one.
"""

from collections.abc import Mapping

from tapeway.core import encoding
from tapeway.core.completeness import Ending, Scanner, Terms
from tapeway.core.event_scanner import EventScanner
from tapeway.core.frame_scanner import FrameScanner
from tapeway.core.headers import find
from tapeway.core.json_text import Json
from tapeway.core.line_scanner import LineScanner
from tapeway.core.model import ResponseHead
from tapeway.providers.calls import Call

_DONE = frozenset({b"[DONE]"})
_ERROR = frozenset({"error"})

_CHAT = Terms(_DONE, errors=_ERROR)
# OpenRouter puts [DONE] behind the Responses API's own mark.
_RESPONSES = Terms(
    _DONE, frozenset({"response.completed", "response.incomplete"}), _ERROR | {"response.failed"}
)
_ANTHROPIC = Terms(names=frozenset({"message_stop"}), errors=_ERROR)
_COHERE = Terms(_DONE, frozenset({"message-end"}), _ERROR)
# No end mark at all: the transport's end is the only one.
_GEMINI = Terms(errors=_ERROR)

_EVENTS: Mapping[str, Terms] = {
    "chat": _COHERE,
    "chat.completions": _CHAT,
    "completions": _CHAT,
    "fim.completions": _CHAT,
    "messages": _ANTHROPIC,
    "responses": _RESPONSES,
    "streamGenerateContent": _GEMINI,
    "streamRawPredict": _ANTHROPIC,
}
_LAST_LINES: Mapping[str, tuple[str, Json]] = {
    "api.chat": ("done", True),
    "api.generate": ("done", True),
    "chat": ("event_type", "stream-end"),
}
_LAST_FRAMES: Mapping[str, str | None] = {
    "converse-stream": "metadata",
    "invoke-with-response-stream": None,
}

_LINES = frozenset(
    {b"application/x-ndjson", b"application/ndjson", b"application/jsonl"}
    | {b"application/stream+json"}
)


def ending(call: Call | None, head: ResponseHead) -> Ending:
    """What tells the end of the answer with this head; of one that is no known stream, its length."""
    scanner = _scanner(call, head) if call is not None and 200 <= head.status < 300 else None
    coding = encoding.coding_of(head.headers)
    decoder = encoding.decoder(coding) if scanner is not None and coding else None
    if call is None or scanner is None or (coding and decoder is None):
        return Ending(length=head.length)
    return Ending(scanner, decoder, expected=_has_mark(call), length=head.length)


def _scanner(call: Call, head: ResponseHead) -> Scanner | None:
    content_type = find(head.headers, b"content-type") or b""
    media = content_type.partition(b";")[0].strip().lower()
    endpoint = call.endpoint
    if media == b"text/event-stream" and endpoint in _EVENTS:
        return EventScanner(_EVENTS[endpoint])
    if media in _LINES and endpoint in _LAST_LINES:
        return LineScanner(*_LAST_LINES[endpoint])
    if media == b"application/vnd.amazon.eventstream" and endpoint in _LAST_FRAMES:
        return FrameScanner(_LAST_FRAMES[endpoint])
    return None


def _has_mark(call: Call) -> bool:
    if call.endpoint == "invoke-with-response-stream":
        # What other models' last event holds is their own affair.
        return "anthropic." in (call.model or "")
    return _EVENTS.get(call.endpoint) is not _GEMINI
