"""Large bodies put back where they belong, for a document that stands alone."""

from dataclasses import replace

from tapeway.body_files import recalled, whole
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request
from tapeway.errors import AdminError

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
    return replace(item, request=request, response=await recalled(response))


async def _asked(request: Request, file: BodyFile) -> Request:
    return replace(request, body=await whole(file), file=None)
