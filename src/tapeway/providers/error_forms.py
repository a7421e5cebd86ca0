"""The errors of providers in their own forms: one row for each dialect.

The forms are those of the providers' API references, and of recorded answers: OpenAI's "Error codes",
Anthropic's "Errors", Google's `google.rpc.Status`, the exceptions of Bedrock's `InvokeModel` and
`ConverseStream`, Cohere's `ChatMessageEndEvent`, Ollama's `{"error": TEXT}`.
"""

import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from tapeway.core.json_text import Json, dump
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.streams.aws_frames import MEDIA_TYPE as AWS_FRAMES
from tapeway.core.streams.aws_frames import exception_frame
from tapeway.core.streams.events import SSE
from tapeway.providers.api_call import describe_call
from tapeway.providers.catalogue import PROVIDERS

_OVERLOADED = 529
_FAILED = "The server had an error while processing the request"
_MESSAGES = {
    429: "Rate limit reached, please try again later",
    500: _FAILED,
    _OVERLOADED: "Overloaded",
}
_BUSY = "The service is overloaded, please try again later"


class ErrorForm(NamedTuple):
    """How a provider reports an error, by an answer and by an event inside a stream.

    `kinds` are the names of errors by status. The event has a name, empty without one, and the data
    of an answer of `status`, or its own.
    """

    body: Callable[[int, str, str], Json]
    kinds: Mapping[int, str] = {}
    event: str = ""
    status: int = 500
    data: Json = None


def _openai(status: int, kind: str, message: str) -> Json:
    code = "rate_limit_exceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else None
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _gemini(status: int, kind: str, message: str) -> Json:
    code = 503 if status == _OVERLOADED else status
    return {"error": {"code": code, "message": message, "status": kind}}


_OPENAI = ErrorForm(_openai, {429: "requests"})
_ENDED: Json = {
    "type": "message-end",
    "delta": {"finish_reason": "ERROR", "error": _FAILED},
}
_BUSY_AT_AWS = "ServiceUnavailableException"
_FORMS: Mapping[str, ErrorForm] = {
    "openai": _OPENAI,
    "responses": _OPENAI._replace(
        event="error", data={"type": "error", "code": "server_error", "message": _FAILED}
    ),
    "anthropic": ErrorForm(
        lambda _, kind, message: {"type": "error", "error": {"type": kind, "message": message}},
        {429: "rate_limit_error", 500: "api_error", 503: "api_error", 529: "overloaded_error"},
        "error",
        _OVERLOADED,
    ),
    "gemini": ErrorForm(
        _gemini,
        {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 529: "UNAVAILABLE"},
        status=503,
    ),
    "bedrock": ErrorForm(
        lambda *args: {"message": args[2]},
        {
            429: "ThrottlingException",
            500: "InternalServerException",
            **dict.fromkeys((503, _OVERLOADED), _BUSY_AT_AWS),
        },
    ),
    "cohere": ErrorForm(lambda *args: {"message": args[2]}, event="message-end", data=_ENDED),
    "ollama": ErrorForm(lambda *args: {"error": args[2]}),
    "": ErrorForm(
        lambda _, kind, message: {"error": {"message": message, "type": kind}, "message": message},
        event="error",
    ),
}
"""By the dialect of the provider's API; OpenAI's Responses have events of their own."""


def error_answer(request: Request, status: int, retry_after_s: float | None) -> Response:
    """The answer with which the provider of a request reports an error."""
    dialect = _dialect_of(request)
    headers: Headers = ((b"Content-Type", b"application/json"),)
    if dialect == "bedrock":
        headers = (*headers, (b"x-amzn-ErrorType", _kind(_FORMS[dialect], status).encode()))
    if retry_after_s is not None:
        # The standard has whole seconds; OpenAI's and Anthropic's clients read the other first.
        headers = (*headers, (b"Retry-After", b"%d" % math.ceil(retry_after_s)))
        headers = (*headers, (b"retry-after-ms", b"%d" % round(retry_after_s * 1000)))
    reason = "Overloaded" if status == _OVERLOADED else HTTPStatus(status).phrase
    return Response(ResponseHead(status, reason, headers), dump(_body(_FORMS[dialect], status)))


def error_event(request: Request, media: bytes) -> bytes:
    """The event with which the provider of a request reports an error inside a stream."""
    form = _FORMS[_dialect_of(request)]
    data = dump(form.data or _body(form, form.status))
    if media == AWS_FRAMES:
        return exception_frame("modelStreamErrorException", dump({"message": _FAILED}))
    if media != SSE:
        return data + b"\n"
    named = f"event: {form.event}\n".encode() if form.event else b""
    return b"%bdata: %b\n\n" % (named, data)


def _body(form: ErrorForm, status: int) -> Json:
    return form.body(status, _kind(form, status), _MESSAGES.get(status, _BUSY))


def _kind(form: ErrorForm, status: int) -> str:
    return form.kinds.get(status, "server_error")


def _dialect_of(request: Request) -> str:
    if (call := describe_call(request.route, request)) is None:
        return ""
    dialect = PROVIDERS[call.provider].dialect
    return "responses" if dialect == "openai" and call.endpoint == "responses" else dialect
