"""The detector for the end of a response, by the endpoint that was asked."""

from tapeway.core.http import content_codings
from tapeway.core.http.headers import media_type
from tapeway.core.model.messages import ResponseHead
from tapeway.core.streams import aws_frames, json_lines, sse
from tapeway.core.streams.end_marks import EndDetector, EndScanner
from tapeway.providers.api_call import ApiCall
from tapeway.providers.endpoints import UNKNOWN, UNKNOWN_MARKS, endpoint_named


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
    endpoint = UNKNOWN if call is None else endpoint_named(call.endpoint)
    if media == sse.MEDIA_TYPE:
        marks = endpoint.events
        if marks is None:
            return sse.SseScanner(UNKNOWN_MARKS), False
        return sse.SseScanner(marks), bool(marks.texts or marks.names)
    if media in json_lines.MEDIA_TYPES:
        if endpoint.last_line is None:
            return json_lines.JsonLineScanner(), False
        return json_lines.JsonLineScanner(*endpoint.last_line), True
    if media == aws_frames.MEDIA_TYPE:
        if endpoint.last_frame is None:
            return aws_frames.AwsFrameScanner(""), False
        last = endpoint.last_frame.event
        # The last events of other models are not known.
        anthropic = call is not None and "anthropic." in (call.model or "")
        return aws_frames.AwsFrameScanner(last), last is not None or anthropic
    return None, False
