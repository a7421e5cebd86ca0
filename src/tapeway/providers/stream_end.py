"""The detector for the end of a response, by the endpoint that was asked."""

from tapeway.core.http import content_codings
from tapeway.core.model.messages import ResponseHead
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.end_marks import EndDetector, EndScanner, LastFrame
from tapeway.core.streams.framings import FRAMINGS
from tapeway.providers.api_call import ApiCall
from tapeway.providers.endpoints import UNKNOWN_ENDS, endpoint_named


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
    framing = FRAMINGS.get(media_type(head.value(b"content-type") or b""))
    if framing is None:
        return None, False
    known = () if call is None else endpoint_named(call.endpoint).ends
    for ends in (*known, *UNKNOWN_ENDS):
        if ends.reader is framing.reader:
            is_certain = ends.is_certain or (ends == LastFrame(None) and _is_anthropic(call))
            return EndScanner(ends), is_certain and ends in known
    return None, False


def _is_anthropic(call: ApiCall | None) -> bool:
    # The last events of other models are not known.
    return call is not None and "anthropic." in (call.model or "")
