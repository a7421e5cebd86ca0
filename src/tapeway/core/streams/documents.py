"""The JSON texts of an answer: one of a plain body, one an event of a stream."""

import re
from collections.abc import Iterator

from tapeway.core.http import content_codings
from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Response
from tapeway.core.streams import aws_frames

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LINES = frozenset({b"application/x-ndjson", b"application/jsonl", b"application/stream+json"})


def documents(response: Response) -> Iterator[bytes]:
    """Each text in order, unparsed; nothing where the body's coding cannot be undone.

    What is no JSON (`[DONE]`) comes too, and an event that the end of the body cut short.
    """
    coding = find_header(response.headers, b"content-encoding") or b""
    body = content_codings.decode(coding, response.body)
    if body is None:
        return iter(())
    media_type = (
        (find_header(response.headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    )
    if media_type == b"text/event-stream":
        return sse_data(body)
    if media_type == aws_frames.MEDIA_TYPE:
        return (each.text for each in aws_frames.parse_frames(body) if each.headers is not None)
    if media_type in _LINES:
        return iter(_LINE_END.split(body))
    return iter((body,))


def sse_data(body: bytes) -> Iterator[bytes]:
    """The data of each server-sent event (WHATWG HTML, section 9.2)."""
    data: list[bytes] = []
    for line in _LINE_END.split(body.removeprefix(b"\xef\xbb\xbf")):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line == b"data":
            data.append(b"")
        elif not line and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)
