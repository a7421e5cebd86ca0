"""Large bodies put back where they belong, for a document that stands alone."""

from dataclasses import replace

from tapeway.core.model import (
    BodyFile,
    ForeignInteraction,
    Interaction,
    Request,
    Response,
    ResponseChunk,
    StoredCassette,
)
from tapeway.errors import AdminError
from tapeway.spool import whole

MIB = 1024 * 1024
MOST = 32 * MIB
"""A document is made in memory, where its bodies take several times their size."""


async def inlined(name: str, stored: StoredCassette) -> StoredCassette:
    """The cassette with no body in a file. Raises AdminError (413) where they are too large."""
    found = [each for each in stored.interactions if isinstance(each, Interaction)]
    files = [file for each in found for file in (each.request.file, each.response.file) if file]
    if not files:
        return stored
    if (size := sum(file.size for file in files)) > MOST:
        raise AdminError(
            f"cassette '{name}' holds {size} bytes in files beside it, more than the {MOST} that "
            f"go into one document: copy {name}.json and {name}.assets from the store's folder",
            status=413,
            code="cassette_too_large",
        )
    return replace(
        stored, interactions=tuple([await _inlined(each) for each in stored.interactions])
    )


async def _inlined(item: Interaction | ForeignInteraction) -> Interaction | ForeignInteraction:
    if isinstance(item, ForeignInteraction):
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = await _asked(request, request.file)
    if response.file is not None:
        response = await _answered(response, response.file)
    return replace(item, request=request, response=response)


async def _asked(request: Request, file: BodyFile) -> Request:
    return replace(request, body=await whole(file), file=None)


async def _answered(response: Response, file: BodyFile) -> Response:
    body, start = await whole(file), 0
    chunks: list[ResponseChunk] = []
    for at_ms, length in response.cuts:
        chunks.append(ResponseChunk(body[start : start + length], at_ms))
        start += length
    return Response(response.head, tuple(chunks), response.latency_ms, verdict=response.verdict)
