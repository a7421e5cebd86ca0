"""Large bodies of a cassette, in pieces: what its interactions name by size and digest."""

import re

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.etags import tag
from tapeway.admin.models.interactions import BodyKept
from tapeway.admin.operation import Plain
from tapeway.admin.request_body import MIB, media_type, pieces
from tapeway.body_files import Spool, stream
from tapeway.core.model.messages import BodyFile
from tapeway.engine.editing.lookup import no_cassette
from tapeway.errors import AdminError, CassetteCorrupt, TapewayError

MOST_KEPT = 16 * 1024 * MIB
OCTETS = frozenset({"application/octet-stream"})
_DIGEST = re.compile(r"[0-9a-f]{64}")


async def get_body(console: HandlerContext, call: Plain) -> web.StreamResponse:
    """A large body that an interaction of the cassette refers to as its `body_file`."""
    name, digest = call.cassette, _digest(call.request)
    file = await console.broker.editor.body(name, digest)
    if file is None:
        if not console.broker.is_in(name) and await console.broker.store.stat(name) is None:
            raise no_cassette(name)
        raise AdminError(
            f"no interaction of cassette '{name}' refers to the body {digest}",
            status=404,
            code="no_body",
        )
    response = web.StreamResponse(
        headers={"Content-Type": "application/octet-stream", "ETag": tag(digest)}
    )
    response.content_length = file.size
    await response.prepare(call.request)
    if call.request.method == "HEAD":
        return response
    try:
        async for piece in stream(file):
            await response.write(piece)
    except TapewayError:
        # The head is out: what can be told now is only that this is not all of it.
        if call.request.transport is not None:
            call.request.transport.abort()
        raise ConnectionAbortedError from None
    await response.write_eof()
    return response


async def put_body(console: HandlerContext, call: Plain) -> BodyKept:
    """Bring a large body in, durable when this answers, for an interaction that comes next."""
    name, digest = call.cassette, _digest(call.request)
    media_type(call.request, OCTETS)
    spool = Spool(console.broker.scratch)
    async for piece in pieces(call.request, MOST_KEPT):
        await spool.add(piece)
    found = await spool.finish()
    try:
        await console.broker.editor.keep(name, BodyFile("", found.size, digest, hold=found.hold))
    except CassetteCorrupt:
        raise AdminError(
            "the body has another digest than its path says: nothing was kept",
            status=422,
            code="wrong_digest",
        ) from None
    return BodyKept(sha256=digest, size=found.size)


def _digest(request: web.Request) -> str:
    digest = request.match_info["sha256"]
    if not _DIGEST.fullmatch(digest):
        raise AdminError(
            "a body is named by its SHA-256 in 64 hexadecimal digits", code="bad_digest"
        )
    return digest
