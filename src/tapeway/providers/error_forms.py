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
_MESSAGES = {
    429: "Rate limit reached, please try again later",
    500: "The server had an error while processing the request",
    503: "The service is overloaded, please try again later",
    _OVERLOADED: "Overloaded",
}


class ErrorForm(NamedTuple):
    """How a provider reports an error: by the body of an answer, and by an event inside a stream.

    `kinds` are the names of errors by status. The event has a name, empty without one, and data.
    """

    kinds: Mapping[int, str]
    body: Callable[[int, str, str], Json]
    event: tuple[str, Json]


def _openai(status: int, kind: str, message: str) -> Json:
    code = "rate_limit_exceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else None
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _anthropic(_: int, kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _gemini(status: int, kind: str, message: str) -> Json:
    code = 503 if status == _OVERLOADED else status
    return {"error": {"code": code, "message": message, "status": kind}}


_OPENAI = ErrorForm({429: "requests"}, _openai, ("", _openai(500, "server_error", _MESSAGES[500])))
_RESPONSES = _OPENAI._replace(
    event=("error", {"type": "error", "code": "server_error", "message": _MESSAGES[500]})
)
_BEDROCK = ErrorForm(
    {
        429: "ThrottlingException",
        500: "InternalServerException",
        503: "ServiceUnavailableException",
        _OVERLOADED: "ServiceUnavailableException",
    },
    lambda status, kind, message: {"message": message},
    ("modelStreamErrorException", {"message": _MESSAGES[500]}),
)
_FORMS: Mapping[str, ErrorForm] = {
    "openai": _OPENAI,
    "anthropic": ErrorForm(
        {429: "rate_limit_error", 500: "api_error", 503: "api_error", 529: "overloaded_error"},
        _anthropic,
        ("error", _anthropic(529, "overloaded_error", _MESSAGES[529])),
    ),
    "gemini": ErrorForm(
        {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 529: "UNAVAILABLE"},
        _gemini,
        ("", _gemini(503, "UNAVAILABLE", _MESSAGES[503])),
    ),
    "bedrock": _BEDROCK,
    "cohere": ErrorForm(
        {},
        lambda status, kind, message: {"message": message},
        (
            "message-end",
            {
                "type": "message-end",
                "delta": {"finish_reason": "ERROR", "error": _MESSAGES[500]},
            },
        ),
    ),
    "ollama": ErrorForm(
        {}, lambda status, kind, message: {"error": message}, ("", {"error": _MESSAGES[500]})
    ),
}
"""By the dialect of the provider's API; OpenAI's Responses have events of their own."""

_UNKNOWN = ErrorForm(
    {},
    lambda status, kind, message: {"error": {"message": message, "type": kind}, "message": message},
    ("error", {"error": {"message": _MESSAGES[500], "type": "server_error"}}),
)


def error_answer(request: Request, status: int, retry_after_s: float | None) -> Response:
    """The answer with which the provider of a request reports an error."""
    form, message = _form_of(request), _MESSAGES[status]
    kind = form.kinds.get(status, "server_error")
    headers: Headers = ((b"Content-Type", b"application/json"),)
    if form is _BEDROCK:
        headers = (*headers, (b"x-amzn-ErrorType", kind.encode()))
    if retry_after_s is not None:
        # The standard has whole seconds; OpenAI's and Anthropic's clients read the other first.
        headers = (*headers, (b"Retry-After", b"%d" % math.ceil(retry_after_s)))
        headers = (*headers, (b"retry-after-ms", b"%d" % round(retry_after_s * 1000)))
    reason = "Overloaded" if status == _OVERLOADED else HTTPStatus(status).phrase
    return Response(ResponseHead(status, reason, headers), dump(form.body(status, kind, message)))


def error_event(request: Request, media: bytes) -> bytes:
    """The event with which the provider of a request reports an error inside a stream."""
    name, data = _form_of(request).event
    if media == AWS_FRAMES:
        return exception_frame(_BEDROCK.event[0], dump(_BEDROCK.event[1]))
    if media != SSE:
        return dump(data) + b"\n"
    named = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (named, dump(data))


def _form_of(request: Request) -> ErrorForm:
    call = describe_call(request.route, request)
    if call is None:
        return _UNKNOWN
    dialect = PROVIDERS[call.provider].dialect
    if dialect == "openai" and call.endpoint == "responses":
        return _RESPONSES
    return _FORMS[dialect]
