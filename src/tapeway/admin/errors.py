"""Errors of the admin listener, in the one shape all of tapeway's errors have.

Cassettes brought in whole, and removed.
"""

from collections.abc import Mapping

from aiohttp import web

from tapeway.core.http.sdk_conventions import error_document
from tapeway.core.json_text import dump
from tapeway.errors import AdminError, TapewayError
from tapeway.formats.errors import FormatFault

SHIELD = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Server": "tapeway",
}
"""On every answer: recorded bodies pass through here, and a browser must take none for a page."""
_MORE: dict[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}


def refuse(
    error: TapewayError, request_id: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """The answer an error becomes."""
    response = web.Response(
        status=error.status,
        body=dump(error_document(error.code, error.message, request_id, {})),
        content_type="application/json",
        headers={**SHIELD, **_MORE.get(error.status, {}), **(headers or {})},
    )
    if request_id:
        response.headers["x-request-id"] = response.headers["request-id"] = request_id
    return response


def of_library(error: web.HTTPException) -> TapewayError:
    """What an error of the library means here; its own text may repeat what was sent."""
    if error.status == 404:
        return AdminError(
            "there is nothing at this path: /openapi.json lists what there is",
            status=404,
            code="not_found",
        )
    if error.status == 405:
        return AdminError(
            "this path does not take this method: the Allow header lists those it takes",
            status=405,
            code="method_not_allowed",
        )
    if 400 <= error.status < 500:
        return AdminError("the request cannot be understood", status=error.status)
    return TapewayError("tapeway failed to answer; its log says where")


def allowed(error: web.HTTPException) -> Mapping[str, str]:
    """The Allow header of a 405, which is all of the library's headers that goes out."""
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}


def unreadable(fault: FormatFault) -> AdminError:
    """The error for a document that is no cassette, or none of an interaction."""
    line = "" if fault.line is None else f"line {fault.line}: "
    return AdminError(
        f"this cannot be read, so nothing was kept: {line}{fault}", status=422, code="bad_cassette"
    )
