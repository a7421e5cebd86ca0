"""Recorded calls of LLMs, made of what was asked and answered."""

import json
from collections.abc import Sequence

from tapeway.conversations.model import document
from tapeway.conversations.transcript import Transcript, transcript
from tapeway.core.json_text import Json
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    Failure,
    Headers,
    Request,
    Response,
    ResponseHead,
    Verdict,
)

JSON_TYPE = (b"Content-Type", b"application/json")
DATE = (b"Date", b"Sat, 21 Nov 2026 20:35:14 GMT")
WHEN = "2026-11-21T20:35:14+00:00"
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


def sse(values: Sequence[Json], *, cut: bool = False) -> bytes:
    """Server-sent events with these values; `cut` in the middle of the last."""
    body = b"".join([b"data: " + json.dumps(value).encode() + b"\n\n" for value in values])
    return body[:-6] if cut else body


def ndjson(values: Sequence[Json]) -> bytes:
    return b"".join([json.dumps(value).encode() + b"\n" for value in values])


def call(
    index: int,
    target: str,
    asked: object,
    answer: object,
    *,
    route: str = "openai",
    status: int = 200,
    media: bytes = b"application/json",
    verdict: Verdict = "",
    failure: Failure | None = None,
    more: Headers = (DATE,),
) -> Interaction:
    """A call; an answer of bytes is sent as it is."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    headers = ((b"Content-Type", media), *more)
    return Interaction(
        index=index,
        request=Request(route, "POST", target, (JSON_TYPE,), json.dumps(asked).encode()),
        response=Response(ResponseHead(status, headers=headers), body, verdict=verdict),
        failure=failure,
    )


def chat(index: int, messages: Sequence[object], answer: object, status: int = 200) -> Interaction:
    """A call of Chat Completions with the answer's message, or its text."""
    said = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
    value = {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}
    return call(index, CHAT, {"model": "m", "messages": messages}, value, status=status)


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def messages_of(found: Transcript) -> list[Json]:
    """The messages as documents, without what is the same in all of them."""
    return [
        {
            name: value
            for name, value in document(message).items()
            if name not in ("conversation", "interaction", "timestamp", "model")
        }
        for message in found.messages
    ]


def lines(*calls: Interaction) -> list[str]:
    """Who said what in which conversation: `0 user: hello`."""
    return [
        f"{message.conversation} {message.role}: {message.content}"
        for message in transcript(calls).messages
    ]
