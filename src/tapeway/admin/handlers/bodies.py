"""Large bodies of a cassette, to which interactions refer by size and digest."""

import re

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.etags import etag_header
from tapeway.admin.handlers.cassettes import check_exists
from tapeway.admin.models.interactions import BodyKept
from tapeway.admin.operation import PlainCall
from tapeway.admin.request_body import MIB, body_chunks, check_content_type
from tapeway.admin.responses import stream_response
from tapeway.body_files import Spool, stream_body
from tapeway.core.model.messages import BodyFile
from tapeway.errors import AdminError, CassetteCorrupt

BODY_TYPES = frozenset({"application/octet-stream"})
_MAX_BODY = 16 * 1024 * MIB
_DIGEST = re.compile(r"[0-9a-f]{64}")


async def get_body(context: HandlerContext, call: PlainCall) -> web.StreamResponse:
    """A large body that an interaction of the cassette refers to as its `body_file`."""
    name, digest = call.cassette, _digest(call.request)
    file = await context.broker.editor.body(name, digest)
    if file is None:
        await check_exists(context, name)
        raise AdminError(
            f"no interaction of cassette '{name}' refers to the body {digest}",
            status=404,
            code="no_body",
        )
    headers = {
        "Content-Type": "application/octet-stream",
        # No browser may take a body for a page of the listener.
        "Content-Disposition": f'attachment; filename="{digest}"',
        "Content-Length": str(file.size),
        **etag_header(digest),
    }
    return await stream_response(call.request, headers, stream_body(file))


async def put_body(context: HandlerContext, call: PlainCall) -> BodyKept:
    """Upload a large body for an interaction that follows; it is durable when this returns."""
    name, digest = call.cassette, _digest(call.request)
    check_content_type(call.request, BODY_TYPES)
    spool = Spool(context.broker.scratch)
    async for chunk in body_chunks(call.request, _MAX_BODY):
        await spool.add(chunk)
    file = await spool.finish()
    try:
        await context.broker.editor.keep(name, BodyFile("", file.size, digest, handle=file.handle))
    except CassetteCorrupt:
        raise AdminError(
            "the body does not have the digest in its path: nothing was stored",
            status=422,
            code="wrong_digest",
        ) from None
    return BodyKept(sha256=digest, size=file.size)


def _digest(request: web.Request) -> str:
    digest = request.match_info["sha256"]
    if not _DIGEST.fullmatch(digest):
        raise AdminError(
            "a body is named by its SHA-256 in 64 lower-case hexadecimal digits", code="bad_digest"
        )
    return digest
