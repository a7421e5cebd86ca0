"""Responses of tapeway's own on the proxy listener: misses and errors.

Status 424 and `x-should-retry: false` keep SDKs from retrying.
"""

import secrets
from http import HTTPStatus

from tapeway.core.http.sdk_conventions import error_document
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.key import key_text
from tapeway.core.misses.miss import Miss
from tapeway.core.model.messages import Headers, Response, ResponseHead
from tapeway.errors import StoreError, TapewayError
from tapeway.server.wire import WireResponse, serialise

_USE_HTTP: Headers = ((b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade"))
"""A 426 names the protocol to use instead (RFC 9110 section 15.5.22)."""
_DO_NOT_RETRY: Headers = ((b"x-should-retry", b"false"),)


def malformed_request_response(error: TapewayError) -> WireResponse:
    """The response to input that is not valid HTTP; it closes the connection."""
    return WireResponse(last_response(error), keep_alive=False)


def last_response(error: TapewayError) -> list[bytes]:
    """The bytes of an error response to no request that was read; it closes the connection."""
    request_id = f"tw-{secrets.token_hex(6)}"
    response = error_response(error, request_id=request_id, tapeway={}, ollama=False)
    extra = ((b"Tapeway-Outcome", b"error"),)
    return serialise(response, extra, method="GET", version=(1, 1), keep_alive=False)


def error_response(
    error: TapewayError, *, request_id: str, tapeway: dict[str, Json], ollama: bool
) -> Response:
    """The response to a request that failed with this error."""
    body = _body(error.code, error.message, request_id, tapeway, ollama=ollama)
    # The upstream was paid for a response that could not be stored: a retry would pay again.
    more = _DO_NOT_RETRY if isinstance(error, StoreError) else ()
    if error.status == HTTPStatus.UPGRADE_REQUIRED:
        more = _USE_HTTP
    return _response(error.status, request_id, body, more)


def miss_response(
    miss: Miss, *, status: int, request_id: str, admin: str | None, ollama: bool
) -> Response:
    """The response to a request that missed; `admin` is the URL of the admin listener."""
    tapeway: dict[str, Json] = {
        "cassette": miss.cassette,
        "method": miss.method,
        "path": miss.target,
        "match_key": key_text(miss.key),
        "nearest": [each.document for each in miss.explanation.nearest],
        "suggestion": miss.explanation.suggestion,
        "journal": admin and f"{admin}/api/v1/journal?outcome=miss",
        "page": _page_of(request_id, admin),
    }
    body = _body("replay_miss", miss.message, request_id, tapeway, ollama=ollama)
    return _response(status, request_id, body, _DO_NOT_RETRY)


def miss_warning(miss: Miss, request_id: str, admin: str | None) -> str:
    """The line for the log, with the address that shows the miss in a browser."""
    page = _page_of(request_id, admin)
    return miss.warning if page is None else f"{miss.warning}; see {page}"


def _page_of(request_id: str, admin: str | None) -> str | None:
    return f"{admin}/#/journal/{request_id}" if admin else None


def _body(
    code: str, message: str, request_id: str, tapeway: dict[str, Json], *, ollama: bool
) -> bytes:
    if ollama:
        # Ollama's JavaScript client prints `[object Object]` for anything but a string.
        return dump({"error": message})
    return dump(error_document(code, message, request_id, tapeway))


def _response(status: int, request_id: str, body: bytes, more: Headers) -> Response:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    id_value = request_id.encode()
    headers: Headers = (
        (b"content-type", b"application/json"),
        (b"x-request-id", id_value),
        (b"request-id", id_value),
        *more,
    )
    return Response(ResponseHead(status, reason, headers), body)
