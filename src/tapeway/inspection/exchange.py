"""One interaction for reading: request, response, the assembled answer of an LLM, and the times."""

from collections.abc import Container
from dataclasses import replace
from itertools import islice

from tapeway.body_files import in_memory, stream_body
from tapeway.conversations.meaning import is_stream
from tapeway.conversations.model import ContentPart, ParsedAnswer, merge_assistant_turns
from tapeway.conversations.reader import UnreadableCall, parse_answers, parse_request
from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request, Response
from tapeway.inspection.reading import HEAD, MOST_READ, HeldBody, body_part, headers_part, held_body
from tapeway.inspection.session import session
from tapeway.inspection.summary import summary
from tapeway.inspection.timeline import timeline

_MOST_ANSWERS = 20
_MOST_CHARACTERS = 1024 * 1024
"""For each text of a message or an answer."""
_MOST_PICTURES = 4 * 1024 * 1024
"""Characters of the pictures of a request's messages."""


class ReadableExchange:
    """An HTTP exchange with its bodies in memory; a very large body is cut to a head."""

    def __init__(self, item: Interaction, request: HeldBody, response: HeldBody) -> None:
        self._item = item
        self._request = request
        self._response = response

    @classmethod
    async def of(cls, item: Interaction) -> "ReadableExchange":
        """The exchange, with the files of its bodies read. Raises StoreError."""
        request, response = item.request, item.response
        whole = item
        if all(map(_is_readable, (request.file, response.file))):
            read = await in_memory(item)
            whole = read if isinstance(read, Interaction) else item
        return cls(
            whole,
            await _held_body(whole.request, request.file),
            await _held_body(whole.response, response.file),
        )

    @property
    def document(self) -> dict[str, Json]:
        """All of it as JSON."""
        item = self._item
        named = item.metadata.get
        failure = item.failure
        return {
            "index": item.index,
            "kind": item.request.kind,
            "summary": summary(item),
            "method": item.request.method,
            "url": item.request.url,
            "route": item.request.route,
            "tags": list(item.tags),
            "latency_ms": item.latency_ms,
            "provider": named("provider"),
            "endpoint": named("endpoint"),
            "model": named("model"),
            "usage": None if item.usage is None else dict(item.usage),
            "failure": None
            if failure is None
            else {"kind": failure.kind, "message": failure.message},
            "request": {
                "headers": headers_part(item.request.headers),
                "body": body_part(self._request, item.request.headers),
            },
            "response": self.response,
            "messages": messages_part(item),
            "answers": answers_part(item),
            "timeline": timeline(item),
            "session": session(item),
            "document": None,
        }

    @property
    def response(self) -> dict[str, Json]:
        """The response alone."""
        response = self._item.response
        return {
            "status": response.status or None,
            "reason": response.head.reason,
            "headers": headers_part(response.headers),
            "verdict": response.verdict,
            "body": body_part(self._response, response.headers),
        }


class ForeignView:
    """An interaction of another kind than HTTP: its document."""

    def __init__(self, item: ForeignInteraction, stored: dict[str, Json]) -> None:
        self._item = item
        self._stored = stored

    @property
    def document(self) -> dict[str, Json]:
        names = ("method", "url", "route", "latency_ms", "provider", "endpoint", "model", "usage")
        return {
            "index": self._item.index,
            "kind": str(self._item.document.get("kind")),
            "summary": summary(self._item),
            **dict.fromkeys((*names, "failure", "request", "response", "timeline", "session")),
            "tags": [],
            "messages": [],
            "answers": [],
            "document": self._stored,
        }


def answer_text(item: Interaction) -> str:
    """An answer as text, at most the first MiB: the text of an LLM, or the body."""
    texts = [_text_of_kind(answer.turn.parts, "text") for answer in parse_answers(item) or ()]
    text = "\n".join(filter(None, texts))
    if text or (texts and is_stream(item.response)):
        return text
    return item.response.body[:HEAD].decode("utf-8", "ignore")


def messages_part(item: Interaction) -> list[Json]:
    """What the request of an LLM's call says, message by message; empty for any other request."""
    if len(item.request.body) > MOST_READ:
        return []
    try:
        asked = parse_request(item.request)
    except UnreadableCall:
        return []
    if asked is None:
        return []
    # Those of the last messages first: they are in view.
    room, shown = _MOST_PICTURES, set[str]()
    for turn in reversed(asked.turns):
        for part in turn.parts:
            room -= len(part.data)
            if part.data and room >= 0:
                shown.add(part.data)
    return [
        {"role": turn.role, "parts": [_message_part(part, shown) for part in turn.parts]}
        for turn in (*asked.system, *asked.turns)
    ]


def _message_part(part: ContentPart, pictures: Container[str]) -> Json:
    return {
        "kind": part.kind,
        "text": part.text[:_MOST_CHARACTERS],
        "name": part.name,
        "id": part.id,
        "value": part.value,
        "data": part.data if part.data in pictures else "",
        "failed": part.failed,
    }


def answers_part(item: Interaction) -> list[Json]:
    """The assembled answer of an LLM, one for each choice; empty for any other answer."""
    answers = parse_answers(item) or ()
    return [_answer(answer) for answer in islice(answers, _MOST_ANSWERS) if _says_something(answer)]


def _says_something(answer: ParsedAnswer) -> bool:
    return bool(answer.turn.parts or answer.error)


def _answer(answer: ParsedAnswer) -> Json:
    return {
        "role": answer.turn.role,
        "parts": [
            _message_part(part, (part.data,))
            for turn in merge_assistant_turns([answer.turn])
            for part in turn.parts
        ],
        "stop_reason": answer.stop_reason,
        "error": answer.error,
        "notes": list(answer.notes),
    }


def _text_of_kind(parts: tuple[ContentPart, ...], kind: str) -> str:
    return "".join([part.text for part in parts if part.kind == kind])[:_MOST_CHARACTERS]


def _is_readable(file: BodyFile | None) -> bool:
    return file is None or (file.size <= MOST_READ and bool(file.path or file.handle))


async def _held_body(message: Request | Response, file: BodyFile | None) -> HeldBody:
    """The body of a message that may still be in a file."""
    if message.file is not None and not (message.file.path or message.file.handle):
        # Only the size is known of it.
        return HeldBody(b"", message.file.size)
    if message.file is None:
        body = held_body(message)
        return body if file is None else replace(body, digest=file.digest or None)
    pieces, size = list[bytes](), 0
    async for piece in stream_body(message.file):
        pieces.append(piece)
        size += len(piece)
        if size >= HEAD:
            break
    return HeldBody(b"".join(pieces)[:HEAD], message.file.size, message.file.digest or None)
