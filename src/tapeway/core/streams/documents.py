"""The JSON texts of a response: one for a plain body, one for each event of a stream."""

from collections.abc import Iterator, Sequence

from tapeway.core.http.content_codings import coding_of, content_coding, decode
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, peek_json
from tapeway.core.model.messages import Response
from tapeway.core.model.request_fields import is_json, media_type
from tapeway.core.streams.framings import FRAMINGS, events_of

_SMALL = 128 * 1024


def documents(response: Response, marks: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Each text in order, unparsed; none if the body cannot be decoded.

    Texts that are not JSON (`[DONE]`) are included, and an event that was cut short by the
    end of the body. With `marks`, texts without any mark may be left out.
    """
    body = decode(content_coding(response.headers), response.body)
    if body is None or (marks and not any(body.find(mark) >= 0 for mark in marks)):
        return iter(())
    media = media_type(find_header(response.headers, b"content-type") or b"")
    if media not in FRAMINGS:
        return iter((body,))
    return (event.data for event in events_of(FRAMINGS[media], body, marks))


def json_value(response: Response) -> Json:
    """The value of a small body without a content coding that is said to be JSON, as orjson reads it.

    None for any other body.
    """
    head, body = response.head, response.body
    if not 0 < len(body) <= _SMALL or not is_json(head.value(b"content-type") or b""):
        return None
    if coding_of(head):
        return None
    return peek_json(body)


def placed_documents(response: Response) -> Iterator[tuple[int, bytes]]:
    """The events of a stream, each with its end in the body.

    A plain body yields none, nor does a coded body: places there do not fit the chunks.
    """
    media = media_type(find_header(response.headers, b"content-type") or b"")
    if media in FRAMINGS and not content_coding(response.headers):
        for event in events_of(FRAMINGS[media], response.body):
            yield event.end, event.data
