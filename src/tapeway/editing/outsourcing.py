"""Bodies that are larger than memory should hold, moved to where the store keeps such."""

from collections.abc import Sequence
from dataclasses import replace

from tapeway.core.matching.body_digest import Digester
from tapeway.core.model.cassette import Held
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import LARGE_BODY, BodyFile, Cuts, Request, Response
from tapeway.ports import BodyKeeper, CassetteStore


async def outsourced(store: CassetteStore, name: str, items: Sequence[Held]) -> tuple[Held, ...]:
    """The interactions as they would have been recorded: a large request is found by its digest.

    Raises StoreError; then nothing refers to what was kept by then.
    """
    if not isinstance(store, BodyKeeper):
        return tuple(items)
    return tuple([await _outsourced(store, name, item) for item in items])


async def _outsourced(store: BodyKeeper, name: str, item: Held) -> Held:
    if not isinstance(item, Interaction):
        return item
    request, response = item.request, item.response
    if len(request.body) > LARGE_BODY:
        request = await _asked(store, name, request)
    if sum([len(chunk.data) for chunk in response.chunks]) > LARGE_BODY:
        response = await _answered(store, name, response)
    if request is item.request and response is item.response:
        return item
    return replace(item, request=request, response=response)


async def _asked(store: BodyKeeper, name: str, request: Request) -> Request:
    digester = Digester(request.headers)
    digester.feed(request.body)
    kept: BodyFile = await store.keep(name, [request.body])
    return replace(request, body=b"", file=replace(kept, parts=digester.finish().parts))


async def _answered(store: BodyKeeper, name: str, response: Response) -> Response:
    cuts = Cuts([(chunk.at_ms, len(chunk.data)) for chunk in response.chunks])
    kept = await store.keep(name, [chunk.data for chunk in response.chunks])
    return replace(response, chunks=(), file=kept, cuts=cuts)
