"""The JSON texts of a response: one of a plain body, one an event of a stream."""

import re
from collections.abc import Iterator

from tapeway.core.http.content_codings import decode
from tapeway.core.http.headers import find_header, media_type
from tapeway.core.model.messages import Response
from tapeway.core.streams import aws_frames, sse

_LINE_END = re.compile(rb"\r\n|\n|\r")
_JSON_LINES = frozenset({b"application/x-ndjson", b"application/jsonl", b"application/stream+json"})


def documents(response: Response) -> Iterator[bytes]:
    """Each text in order, unparsed; none if the body cannot be decoded.

    Texts that are not JSON (`[DONE]`) are included, and so is an event that was cut short by the
    end of the body.
    """
    coding = find_header(response.headers, b"content-encoding") or b""
    body = decode(coding, response.body)
    if body is None:
        return iter(())
    media = media_type(find_header(response.headers, b"content-type") or b"")
    if media == sse.MEDIA_TYPE:
        return sse.event_data(body)
    if media == aws_frames.MEDIA_TYPE:
        return (each.text for each in aws_frames.parse_frames(body) if each.headers is not None)
    if media in _JSON_LINES:
        return iter(_LINE_END.split(body))
    return iter((body,))
