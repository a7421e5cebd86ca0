"""Reads what an admin call carries. Nothing that was sent is repeated in an error.

Reads bodies that are no small JSON: cassettes, and large bodies of theirs, in pieces.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, ValidationError

from tapeway.core.json_text import NotJson, parse
from tapeway.errors import AdminError

MAX_BODY = 1024 * 1024
_BODY_S = 30.0

_OF_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""What a page of another site can send without being asked first."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
Model = TypeVar("Model", bound=BaseModel)
MIB = 1024 * 1024

MOST_WHOLE = 64 * MIB
"""What is parsed at once takes several times its size in memory."""
_IDLE_S = 30.0
T = TypeVar("T")


def read_query(request: web.Request, model: type[Model]) -> Model:
    """The query's parameters. Raises AdminError (400) for an unknown, repeated or wrong one."""
    if len(set(request.query)) != len(request.query):
        raise AdminError("a query parameter stands twice", code="bad_query")
    try:
        return model.model_validate(dict(request.query))
    except ValidationError as exc:
        raise AdminError(said(exc, model, "query parameter"), code="bad_query") from None


async def read_body(request: web.Request, model: type[Model]) -> Model:
    """The body's fields; no body is an object without fields.

    Raises AdminError: 400, 408, 413, and 415 for a body that is not declared as JSON, which keeps
    the forms of other sites out.
    """
    _check_type(request)
    text = await _whole(request)
    try:
        value = parse(text) if text.strip() else {}
    except NotJson:
        raise AdminError(
            "the body is not JSON that every reader understands alike: UTF-8, no key twice, no NaN "
            "or Infinity, not nested absurdly deep"
        ) from None
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as exc:
        raise AdminError(said(exc, model, "field")) from None


def _check_type(request: web.Request) -> None:
    types = request.headers.getall("Content-Type", [])
    if not request.can_read_body and not _OF_FORMS.intersection(map(_media, types)):
        # Some clients declare a type for the body they do not send.
        return
    if len(types) != 1 or not _is_json(request) or "Content-Encoding" in request.headers:
        raise AdminError(
            "the body must be sent as 'Content-Type: application/json', in UTF-8 and not compressed",
            status=415,
            code="unsupported_media_type",
        )


def _media(value: str) -> str:
    return value.partition(";")[0].strip().lower()


def _is_json(request: web.Request) -> bool:
    charset = (request.charset or "utf-8").lower()
    return request.content_type == "application/json" and charset in ("utf-8", "utf8")


async def _whole(request: web.Request) -> bytes:
    if (request.content_length or 0) > MAX_BODY:
        raise _too_large()
    if "Expect" in request.headers and request.version >= (1, 1) and request.transport is not None:
        # Only here: a caller who is refused need not send a body.
        request.transport.write(CONTINUE)
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise _too_large() from None
    except TimeoutError:
        raise AdminError(
            "the body did not come in time", status=408, code="request_timeout"
        ) from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise AdminError("the body is not framed as it says") from None


def _too_large() -> AdminError:
    return AdminError(
        f"the body is larger than {MAX_BODY} bytes", status=413, code="request_too_large"
    )


def said(exc: ValidationError, model: type[BaseModel], kind: str) -> str:
    """What is wrong with what was sent, without repeating it."""
    first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "extra_forbidden":
        known = ", ".join(f"'{name}'" for name in model.model_fields) or "none"
        return f"there is an unknown {kind}; known are: {known}"
    where = f"{kind} '{first['loc'][0]}': " if first["loc"] else "the body: "
    return where + first["msg"]


def media_type(request: web.Request, accepted: Collection[str]) -> str:
    """What the body is declared as. Raises AdminError (415) for anything else.

    None of those may be what a page of another site can send without being asked first.
    """
    declared = request.headers.getall("Content-Type", [])
    found = declared[0].partition(";")[0].strip().lower() if len(declared) == 1 else ""
    charset = (request.charset or "utf-8").lower() if found else ""
    plain = charset in ("utf-8", "utf8") and "Content-Encoding" not in request.headers
    if found in accepted and plain:
        return found
    raise AdminError(
        f"the body must be sent as 'Content-Type: {' or '.join(sorted(accepted))}', not compressed",
        status=415,
        code="unsupported_media_type",
    )


async def pieces(request: web.Request, most: int) -> AsyncIterator[bytes]:
    """The body as it comes. Raises AdminError: 400, 408, 413."""
    if (request.content_length or 0) > most:
        raise too_large(most)
    if "Expect" in request.headers and request.version >= (1, 1) and request.transport is not None:
        # Only here: a caller who is refused need not send a body.
        request.transport.write(CONTINUE)
    size = 0
    try:
        while piece := await _next(request):
            size += len(piece)
            if size > most:
                raise too_large(most)
            yield piece
    except TimeoutError:
        raise AdminError(
            "the body did not come in time", status=408, code="request_timeout"
        ) from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise AdminError("the body is not framed as it says") from None


async def whole_body(request: web.Request, most: int = MOST_WHOLE) -> bytes:
    """All of the body. Raises AdminError: 400, 408, 413."""
    return b"".join([piece async for piece in pieces(request, most)])


async def model_of(text: bytes, model: type[Model]) -> Model:
    """The fields of a large body of JSON, parsed in a thread. Raises AdminError (400)."""

    def read() -> Model:
        return model.model_validate(parse(text) if text.strip() else {}, strict=True)

    return await parsed(read, model)


async def parsed(read: Callable[[], T], model: type[BaseModel]) -> T:
    """What is read in a thread. Raises AdminError (400) for what is no JSON, or not as it must be."""
    try:
        return await asyncio.to_thread(read)
    except NotJson:
        raise AdminError(
            "the body is not JSON that every reader understands alike: UTF-8, no key twice, no NaN "
            "or Infinity, not nested absurdly deep"
        ) from None
    except ValidationError as exc:
        raise AdminError(said(exc, model, "field")) from None


def too_large(most: int) -> AdminError:
    """The error for a body of more bytes than that."""
    return AdminError(f"the body is larger than {most} bytes", status=413, code="request_too_large")


async def _next(request: web.Request) -> bytes:
    async with asyncio.timeout(_IDLE_S):
        return await request.content.readany()
