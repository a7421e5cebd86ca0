"""Searches an exchange for a text: in decoded bodies and in the assembled stream."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from tapeway.conversations.meaning import is_stream
from tapeway.conversations.reader import parse_answers
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import NotJson, dump, parse
from tapeway.core.matching.document import may_be_json
from tapeway.core.matching.json_paths import texts_in
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Request, Response
from tapeway.core.streams.documents import documents
from tapeway.inspection.reading import held_body

MOST_SEARCHED = 64 * 1024 * 1024
"""Bytes of kept text for one cassette."""

_ANY_ESCAPE, _NUMBERED_ESCAPE = "\\", "\\u"
_HAS_OWN_ESCAPE = frozenset('"\\/\b\f\n\r\t')


class TextFilter:
    """Finds a text in requests and recordings; upper and lower case do not matter."""

    def __init__(self, text: str) -> None:
        self._text = text.casefold()
        # Bodies are parsed only where an escape may hide the text: parsing costs most of a search.
        self._escape = _NUMBERED_ESCAPE if _HAS_OWN_ESCAPE.isdisjoint(text) else _ANY_ESCAPE

    def is_in(self, text: str) -> bool:
        return self._text in text.casefold()

    def is_in_request(self, request: Request) -> bool:
        """Whether the target or the body of a request says it."""
        return any(map(self.is_in, _request_texts(request, self._escape)))

    def is_in_item(self, item: AnyInteraction) -> bool:
        """Whether the request or the answer of a recording contains the text."""
        return any(map(self.is_in, _texts(item, self._escape)))

    def is_in_folded(self, text: str) -> bool:
        """Whether a case folded text contains it."""
        return self._text in text


class RecordedTexts:
    """The texts of recordings of one version of a cassette, kept for further searches."""

    def __init__(self, most_bytes: int = MOST_SEARCHED) -> None:
        self._most_bytes = most_bytes
        self._texts: dict[int, str] = {}
        self.size = 0

    def get(self, index: int) -> str | None:
        """All texts of a recording, case folded; None for a recording without a look so far."""
        return self._texts.get(index)

    def add(self, item: AnyInteraction) -> str:
        """Read and keep all texts of a recording. Call this in a thread."""
        text = searchable_text(item)
        if self.size + (size := sys.getsizeof(text)) <= self._most_bytes:
            self._texts[item.index] = text
            self.size += size
        return text


def searchable_text(item: AnyInteraction) -> str:
    """All texts of a recording as one text, case folded, for many searches."""
    return "\0".join(_texts(item, _ANY_ESCAPE)).casefold()


def _texts(item: AnyInteraction, escape: str) -> Iterator[str]:
    if isinstance(item, ForeignInteraction):
        return (text for _, text in texts_in(dict(item.document)))
    return chain(_request_texts(item.request, escape), _answer_texts(item, escape))


def _request_texts(request: Request, escape: str) -> Iterator[str]:
    yield request.target
    yield from _body_texts(request, escape)


def _body_texts(message: Request | Response, escape: str) -> Iterator[str]:
    """The text of a body, and the texts within where JSON writes any with such an escape."""
    octets = held_body(message).octets
    text = octets.decode("utf-8", "replace")
    yield text
    content_type = find_header(message.headers, b"content-type") or b""
    if escape in text and may_be_json(content_type, octets):
        with suppress(NotJson):
            yield "\n".join([piece for _, piece in texts_in(parse(octets))])


def _answer_texts(item: Interaction, escape: str) -> Iterator[str]:
    yield from _body_texts(item.response, escape)
    if not is_stream(item.response):
        return
    # A word may be spread over several events.
    yield b"".join(documents(item.response)).decode("utf-8", "replace")
    for answer in parse_answers(item) or ():
        for kind in ("text", "thinking"):
            yield "".join([part.text for part in answer.turn.parts if part.kind == kind])
        for part in answer.turn.parts:
            if part.kind == "call":
                yield f"{part.name}\n{dump(part.value).decode()}"
                yield "\n".join([text for _, text in texts_in(part.value)])
