"""The marks by which the streams of each provider end.

The rows follow the providers' documents and recorded streams. Where neither is certain there is no
row: a complete answer must not be taken for a truncated one.
"""

from collections.abc import Mapping

from tapeway.core.http import content_codings
from tapeway.core.http.headers import media_type
from tapeway.core.json_text import Json
from tapeway.core.model.messages import ResponseHead
from tapeway.core.streams import aws_frames, json_lines, sse
from tapeway.core.streams.end_marks import EndDetector, EndMarks, EndScanner
from tapeway.providers.api_call import ApiCall

_DONE = frozenset({b"[DONE]"})
_ERROR = frozenset({"error"})

_CHAT = EndMarks(_DONE, errors=_ERROR)
# OpenRouter puts [DONE] behind the Responses API's own mark.
_RESPONSES = EndMarks(
    _DONE, frozenset({"response.completed", "response.incomplete"}), _ERROR | {"response.failed"}
)
_ANTHROPIC = EndMarks(names=frozenset({"message_stop"}), errors=_ERROR)
_COHERE = EndMarks(_DONE, frozenset({"message-end"}), _ERROR)
# No end mark at all: the transport's end is the only one.
_GEMINI = EndMarks(errors=_ERROR)
# For unknown streams: clients of any provider disconnect at this mark.
_UNKNOWN = EndMarks(_DONE)

EVENTS: Mapping[str, EndMarks] = {
    "chat": _COHERE,
    "chat.completions": _CHAT,
    "completions": _CHAT,
    "fim.completions": _CHAT,
    "messages": _ANTHROPIC,
    "responses": _RESPONSES,
    "streamGenerateContent": _GEMINI,
    "streamRawPredict": _ANTHROPIC,
}
LAST_LINES: Mapping[str, tuple[str, Json]] = {
    "api.chat": ("done", True),
    "api.generate": ("done", True),
    "chat": ("event_type", "stream-end"),
}
LAST_FRAMES: Mapping[str, str | None] = {
    "converse-stream": "metadata",
    "invoke-with-response-stream": None,
}


def end_detector(call: ApiCall | None, head: ResponseHead) -> EndDetector:
    """The detector for the end of the response with this head; without a stream, its length."""
    scanner, expected = _scanner(call, head) if 200 <= head.status < 300 else (None, False)
    if scanner is None:
        return EndDetector(length=head.length)
    coding = content_codings.coding_of(head)
    decoder = content_codings.decoder(coding) if coding else None
    if coding and decoder is None:
        return EndDetector(length=head.length)
    closed = head.framing == "close"
    return EndDetector(scanner, decoder, expected=expected, length=head.length, closed=closed)


def _scanner(call: ApiCall | None, head: ResponseHead) -> tuple[EndScanner | None, bool]:
    """The scanner for the end mark, and whether the protocol ends every stream with one."""
    media = media_type(head.value(b"content-type") or b"")
    endpoint = call.endpoint if call is not None else ""
    if media == sse.MEDIA_TYPE:
        marks = EVENTS.get(endpoint, _UNKNOWN)
        return sse.SseScanner(marks), marks not in (_GEMINI, _UNKNOWN)
    if media in json_lines.MEDIA_TYPES and endpoint in LAST_LINES:
        return json_lines.JsonLineScanner(*LAST_LINES[endpoint]), True
    if media == aws_frames.MEDIA_TYPE and endpoint in LAST_FRAMES:
        last = LAST_FRAMES[endpoint]
        # The last events of other models are not known.
        anthropic = call is not None and "anthropic." in (call.model or "")
        return aws_frames.AwsFrameScanner(last), last is not None or anthropic
    return None, False
