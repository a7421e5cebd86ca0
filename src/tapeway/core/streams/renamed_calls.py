"""Recorded answers of JSON-RPC under the names that the asking client gave to its calls.

The bytes beside the names stay, and so do the chunks; a coded body becomes plain and one chunk.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tapeway.core.http.content_codings import coding_of, decode, without_coding_fields
from tapeway.core.json_rpc import AskedNames, CallNames, names_of, renamed
from tapeway.core.model.messages import Request, Response
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.framings import FRAMINGS, events_of

_Message = Sequence[tuple[int, bytes]]
"""The lines of one message, each with its place in the body."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: bytes


def names_in(request: Request) -> Sequence[CallNames]:
    """The names of the calls in a request; empty if it is no JSON-RPC over HTTP."""
    if request.method != "POST" or request.file is not None:
        return ()
    coding = request.fields.content_encoding
    body = request.body if coding is None else decode(coding, request.body)
    return () if body is None else names_of(body)


def for_asker(response: Response, names: AskedNames) -> Response:
    """The response, its body in memory, under these names; the same object if none is in it."""
    plain = _without_coding(response)
    if plain is None:
        return response
    body = RenamedBody(plain, names)
    pieces = zip(plain.pieces(), plain.arrivals().times, strict=True)
    chunks = [(body.piece(piece), at_ms) for piece, at_ms in pieces]
    made = Response.of_chunks(plain.head, [chunk for chunk in chunks if chunk[0]])
    if made.body == plain.body:
        return response
    head = plain.head
    length = None if head.length is None else len(made.body)
    head = replace(head, headers=without_coding_fields(head.headers), length=length)
    return replace(plain, head=head, body=made.body, at_ms=made.at_ms, chunk_times=made.chunk_times)


def _without_coding(response: Response) -> Response | None:
    coding = coding_of(response.head)
    if not coding or not response.body:
        return response
    if (plain := decode(coding, response.body)) is None:
        return None
    at_ms = response.arrivals().times[-1]
    made = Response.of_chunks(response.head, [(plain, at_ms)] if plain else [])
    return replace(response, body=made.body, at_ms=made.at_ms, chunk_times=made.chunk_times)


class RenamedBody:
    """A body under the names of its reader, piece by piece.

    The names of a message are looked up when the message begins: on a standing stream answers come
    to calls that were made meanwhile.
    """

    def __init__(self, response: Response, names: AskedNames) -> None:
        """The body of the response is in memory, and not coded."""
        self._names = names
        self._place = 0
        self._messages = _messages(response)
        self._next = next(self._messages, None)
        self._edits = deque[_Edit]()

    def piece(self, data: bytes) -> bytes:
        """The next piece of the body under the names."""
        start, end = self._place, self._place + len(data)
        while self._next is not None and self._next[0][0] < end:
            self._edits += _edits(self._next, self._names)
            self._next = next(self._messages, None)
        parts: list[bytes] = []
        done = start
        while self._edits and self._edits[0].start < end:
            edit = self._edits[0]
            if edit.start >= start:
                parts += [data[done - start : edit.start - start], edit.text]
            done = min(edit.end, end)
            if edit.end > end:
                break
            self._edits.popleft()
        self._place = end
        return b"".join([*parts, data[done - start :]])


def _messages(response: Response) -> Iterator[_Message]:
    body, media = response.body, media_type(response.head.value(b"content-type") or b"")
    framing = FRAMINGS.get(media)
    if framing is not None and framing.pieces is not None:
        yield from [event.lines for event in events_of(framing, body)]
    elif body:
        yield [(0, body)]


def _edits(message: _Message, names: AskedNames) -> Iterator[_Edit]:
    text = b"\n".join([line for _, line in message])
    if (asked := renamed(text, names)) == text:
        return
    # A name has no line break.
    for (place, before), after in zip(message, asked.split(b"\n"), strict=True):
        if before != after:
            yield _edit(place, before, after)


def _edit(place: int, before: bytes, after: bytes) -> _Edit:
    """The part that differs, so that every other byte goes out in its chunk."""
    # A message begins with a bracket: of an edit that only inserts, the byte before is a part.
    start = max(0, _common_beginning(before, after) - 1)
    most = min(len(before), len(after)) - start - 1
    end = min(most, _common_beginning(before[::-1], after[::-1]))
    return _Edit(place + start, place + len(before) - end, after[start : len(after) - end])


def _common_beginning(one: bytes, other: bytes) -> int:
    known, most = 0, min(len(one), len(other))
    while known < most:
        tried = (known + most + 1) // 2
        if one[known:tried] == other[known:tried]:
            known = tried
        else:
            most = tried - 1
    return known
