"""The JSON texts of a response: one of a plain body, one an event of a stream."""

import re
from collections.abc import Iterator

from tapeway.core.http.content_codings import content_coding, decode
from tapeway.core.http.headers import find_header, media_type
from tapeway.core.model.messages import Response
from tapeway.core.streams import aws_frames, json_lines, sse

_LINE_END = re.compile(rb"\r\n|\n|\r")


def documents(response: Response) -> Iterator[bytes]:
    """Each text in order, unparsed; none if the body cannot be decoded.

    Texts that are not JSON (`[DONE]`) are included, and so is an event that was cut short by the
    end of the body.
    """
    body = decode(content_coding(response.headers), response.body)
    if body is None:
        return iter(())
    media = media_type(find_header(response.headers, b"content-type") or b"")
    if media == sse.MEDIA_TYPE:
        return sse.event_data(body)
    if media == aws_frames.MEDIA_TYPE:
        return (each.text for each in aws_frames.parse_frames(body) if each.headers is not None)
    if media in json_lines.MEDIA_TYPES:
        return (each.lstrip(json_lines.RECORD_SEPARATOR) for each in _LINE_END.split(body))
    return iter((body,))
