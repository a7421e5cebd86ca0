"""The responses that tapeway writes itself on the proxy listener: misses and errors.

Status 400 and `x-should-retry: false` keep clients from retrying a miss.
"""

import re
from dataclasses import replace
from http import HTTPStatus

from tapeway.core.http.cors import readable_by_page
from tapeway.core.http.sdk_conventions import error_document
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.key import key_text
from tapeway.core.misses.miss import Miss
from tapeway.core.model.messages import Headers, Response, ResponseHead
from tapeway.engine.request_log import page_of
from tapeway.errors import Foreign, StoreError, TapewayError
from tapeway.server.answers import serialise

_USE_HTTP: Headers = ((b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade"))
"""A 426 names the protocol to use instead (RFC 9110 section 15.5.22)."""
_DO_NOT_RETRY: Headers = ((b"x-should-retry", b"false"),)
ERROR_OUTCOME: Headers = ((b"Tapeway-Outcome", b"error"),)
"""The outcome of a request that went to no cassette."""
_NO_DOCUMENT = (b"Content-Security-Policy", b"default-src 'none'; sandbox")
"""In a tab the response is a document of the listener's origin: without this field the browser would ask
for an icon.
"""
_LONGEST_REASON = 120
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def last_response(error: TapewayError, request_id: str) -> list[bytes]:
    """The bytes of an error response to no request that was read; it closes the connection."""
    response = error_response(error, (), request_id=request_id, tapeway={}, ollama=False)
    return serialise(response, ERROR_OUTCOME, method="GET", version=(1, 1), keep_alive=False)


def foreign_response(error: Foreign, *, request_id: str, ollama: bool) -> Response:
    """The response to a foreign page, which says nothing of what is served here."""
    response = error_response(error, (), request_id=request_id, tapeway={}, ollama=ollama)
    headers = (*response.head.headers, _NO_DOCUMENT)
    return replace(response, head=replace(response.head, headers=headers))


def error_response(
    error: TapewayError,
    request: Headers,
    *,
    request_id: str,
    tapeway: dict[str, Json],
    ollama: bool,
) -> Response:
    """The response for an error, readable by the SDKs and by a page on another origin."""
    body = _body(error.code, error.message, request_id, tapeway, ollama=ollama)
    # The upstream was paid for a response that could not be stored: a retry would pay again.
    more = _DO_NOT_RETRY if isinstance(error, StoreError) else ()
    if error.status == HTTPStatus.UPGRADE_REQUIRED:
        more = _USE_HTTP
    more = (*more, *readable_by_page(request))
    return _response(error.status, _phrase(error.status), request_id, body, more)


def miss_response(
    miss: Miss,
    request: Headers,
    *,
    status: int,
    request_id: str,
    admin: str | None,
    page: str | None,
    ollama: bool,
) -> Response:
    """The response for a miss, readable by the SDKs and by a page on another origin.

    `admin` is the URL of the admin listener, `page` the URL of the page or of a report.
    """
    tapeway: dict[str, Json] = {
        "cassette": miss.cassette,
        "method": miss.method,
        "path": miss.target,
        "match_key": key_text(miss.key),
        "nearest": [recording.document for recording in miss.explanation.nearest],
        "suggestion": miss.explanation.suggestion,
        "record_command": miss.record_command,
        "journal": admin and f"{admin}/api/v1/journal?outcome=miss",
        "page": page_of(request_id, page),
    }
    body = _body("replay_miss", miss.message, request_id, tapeway, ollama=ollama)
    more = (*_DO_NOT_RETRY, *readable_by_page(request))
    return _response(status, _reason(miss.message), request_id, body, more)


def _body(
    code: str, message: str, request_id: str, tapeway: dict[str, Json], *, ollama: bool
) -> bytes:
    if ollama:
        # Ollama's JavaScript client prints `[object Object]` for anything but a string.
        return dump({"error": message})
    return dump(error_document(code, message, request_id, tapeway))


def _phrase(status: int) -> str:
    """The reason phrase that RFC 9110 gives a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _reason(message: str) -> str:
    """A message as a reason phrase, which some clients show alone: printable ASCII, and short."""
    text = _NOT_PRINTABLE.sub("?", message[:1].upper() + message[1:])
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."


def _response(status: int, reason: str, request_id: str, body: bytes, more: Headers) -> Response:
    id_value = request_id.encode()
    headers: Headers = (
        (b"content-type", b"application/json"),
        (b"x-request-id", id_value),
        (b"request-id", id_value),
        *more,
    )
    return Response(ResponseHead(status, reason, headers), body)
