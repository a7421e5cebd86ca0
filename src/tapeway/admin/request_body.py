"""Reads the query and the body of an admin call. No error repeats what was sent.

Small JSON bodies are read by `read_body`; cassettes and large bodies come as bytes, whole or in
chunks.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, ValidationError

from tapeway.core.json_text import Json, NotJson, parse
from tapeway.errors import AdminError

Model = TypeVar("Model", bound=BaseModel)

MIB = 1024 * 1024
MAX_BODY = MIB
MAX_IN_MEMORY = 64 * MIB
"""Parsing a document takes several times its size in memory."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON_TYPES = frozenset({"application/json"})
_BODY_S = 30.0
_IDLE_S = 30.0
_JOINED_AT_ONCE = MIB
"""A larger body is put together in a thread, during which the event loop goes on."""


def read_query(request: web.Request, model: type[Model]) -> Model:
    """The query parameters. Raises AdminError (400) for an unknown, repeated or invalid one."""
    if len(set(request.query)) != len(request.query):
        raise AdminError("a query parameter is given twice", code="bad_query")
    try:
        return model.model_validate(dict(request.query))
    except ValidationError as exc:
        raise AdminError(
            _validation_message(exc, model, "query parameter"), code="bad_query"
        ) from None


async def read_body(request: web.Request, model: type[Model]) -> Model:
    """The fields of a JSON body; an empty body of any type is an object without fields.

    Most clients declare a form for the body they do not send. Raises AdminError: 400, 408, 413, and
    415 for a body that is not declared as JSON.
    """
    if request.content_length:
        check_content_type(request, JSON_TYPES)
    with _as_admin_errors():
        async with asyncio.timeout(_BODY_S):
            text = await whole_body(request, MAX_BODY)
    if text:
        check_content_type(request, JSON_TYPES)
    return parse_model(text, model)


def check_content_type(request: web.Request, accepted: Collection[str]) -> str:
    """The media type of the body. Raises AdminError (415) for a type that is not accepted.

    `accepted` may name no type that a page of another site can send without a CORS preflight.
    """
    declared = request.headers.getall("Content-Type", [])
    media_type = declared[0].partition(";")[0].strip().lower() if len(declared) == 1 else ""
    charset = (request.charset or "utf-8").lower() if media_type else ""
    plain = charset in ("utf-8", "utf8") and "Content-Encoding" not in request.headers
    if media_type in accepted and plain:
        return media_type
    raise AdminError(
        f"send the body as 'Content-Type: {' or '.join(sorted(accepted))}', without "
        "Content-Encoding and in no charset but UTF-8",
        status=415,
        code="unsupported_media_type",
    )


async def body_chunks(request: web.Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises AdminError: 400, 408, 413."""
    if (request.content_length or 0) > max_bytes:
        raise _too_large(max_bytes)
    if "Expect" in request.headers and request.version >= (1, 1) and request.transport is not None:
        # Only here: a caller who is refused need not send a body.
        request.transport.write(CONTINUE)
    size = 0
    with _as_admin_errors():
        while chunk := await _next_chunk(request):
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            yield chunk


async def whole_body(request: web.Request, max_bytes: int = MAX_IN_MEMORY) -> bytes:
    """All of the body. Raises AdminError: 400, 408, 413."""
    chunks = [chunk async for chunk in body_chunks(request, max_bytes)]
    if sum(map(len, chunks)) <= _JOINED_AT_ONCE:
        return b"".join(chunks)
    return await asyncio.to_thread(b"".join, chunks)


def parse_model(text: bytes, model: type[Model]) -> Model:
    """The fields of a JSON body. Raises AdminError (400)."""
    value = parse_json(text) if text.strip() else {}
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as exc:
        raise AdminError(_validation_message(exc, model, "field")) from None


def parse_json(text: bytes) -> Json:
    """The value of a JSON body. Raises AdminError (400)."""
    try:
        return parse(text)
    except NotJson:
        raise AdminError(
            "the body is not valid JSON: send UTF-8, without repeated keys, NaN or Infinity, and "
            "not nested absurdly deep"
        ) from None


async def _next_chunk(request: web.Request) -> bytes:
    async with asyncio.timeout(_IDLE_S):
        return await request.content.readany()


@contextmanager
def _as_admin_errors() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise AdminError(
            "the body did not arrive in time", status=408, code="request_timeout"
        ) from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise AdminError("the body does not match its Content-Length or chunks") from None


def _too_large(max_bytes: int) -> AdminError:
    return AdminError(
        f"the body is larger than {max_bytes} bytes", status=413, code="request_too_large"
    )


def _validation_message(exc: ValidationError, model: type[BaseModel], kind: str) -> str:
    first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "extra_forbidden":
        known = ", ".join(f"'{name}'" for name in model.model_fields) or "none"
        return f"there is an unknown {kind}; known are: {known}"
    where = f"{kind} '{first['loc'][0]}': " if first["loc"] else "the body: "
    return where + first["msg"]
