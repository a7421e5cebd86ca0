"""Responses of the admin listener: JSON, streams, and errors in the shape of all tapeway's errors."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from aiohttp import web
from pydantic import BaseModel

from tapeway.core.http.sdk_conventions import error_document
from tapeway.core.json_text import dump
from tapeway.errors import AdminError, TapewayError
from tapeway.formats.errors import FormatFault

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Server": "tapeway",
}
"""On every response: recorded bodies pass through here, and no browser may render one as a page."""
_HEADERS_BY_STATUS: dict[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}


def json_response(
    body: BaseModel | bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON response with a model, or with JSON text as it is."""
    text = body.model_dump_json().encode() if isinstance(body, BaseModel) else body
    return web.Response(
        status=status, body=text, content_type="application/json", headers=headers or {}
    )


async def stream_response(
    request: web.Request, headers: Mapping[str, str], chunks: AsyncIterator[bytes]
) -> web.StreamResponse:
    """Send a body chunk by chunk, or the headers alone for HEAD.

    Where the source fails the connection is aborted: the status is out already, and a truncated
    body must not look complete.
    """
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        async for chunk in chunks:
            await response.write(chunk)
            # To a quick client a write does not wait, and others would until the last one.
            await asyncio.sleep(0)
    except (TapewayError, FormatFault):
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionAbortedError from None
    await response.write_eof()
    return response


def error_response(
    error: TapewayError, request_id: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """The response to a call that failed with `error`."""
    body = dump(error_document(error.code, error.message, request_id, {}))
    more = {**SECURITY_HEADERS, **_HEADERS_BY_STATUS.get(error.status, {}), **(headers or {})}
    if request_id:
        more["x-request-id"] = more["request-id"] = request_id
    return json_response(body, status=error.status, headers=more)


def internal_error() -> TapewayError:
    """The error for a fault in tapeway itself."""
    return TapewayError("tapeway failed to respond; its log says where")


def from_http_exception(error: web.HTTPException) -> TapewayError:
    """The error for an error of aiohttp, without aiohttp's text, which may repeat the request."""
    if error.status == 404:
        return AdminError(
            "there is nothing at this path: /openapi.json lists the paths of the API",
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
    return internal_error()


def allow_header(error: web.HTTPException) -> Mapping[str, str]:
    """The Allow header of a 405, the only one of aiohttp's headers that is sent."""
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}


def bad_cassette(fault: FormatFault) -> AdminError:
    """The error for a document that is not a valid cassette or interaction."""
    line = "" if fault.line is None else f"line {fault.line}: "
    return AdminError(
        f"the content is not valid, so nothing was stored: {line}{fault}",
        status=422,
        code="bad_cassette",
    )
