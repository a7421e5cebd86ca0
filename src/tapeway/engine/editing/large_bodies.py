"""Large bodies that came before the interactions that refer to them.

Bodies that are larger than memory should hold, moved to where the store keeps such.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tapeway.core.matching.body_digest import BodyDigester
from tapeway.core.model.interaction import (
    AnyInteraction,
    Interaction,
    large_bodies,
    replace_large_bodies,
)
from tapeway.core.model.messages import LARGE_BODY, BodyFile, ChunkTimes, Request, Response
from tapeway.errors import AdminError
from tapeway.ports import BodyKeeper, CassetteStore

_REMEMBERED = 4096


def by_digest(items: Iterable[AnyInteraction]) -> dict[str, BodyFile]:
    """The large bodies of these, by their digest."""
    return {file.digest: file for item in items for file in large_bodies(item)}


def placed(item: AnyInteraction, found: Mapping[str, BodyFile]) -> AnyInteraction:
    """The interaction, its large bodies where they lie. Raises AdminError (422) for one that is lost."""
    return replace_large_bodies(item, lambda file: _placed(file, found))


class KeptBodies:
    """The last bodies that were brought in, over all cassettes."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str], BodyFile] = OrderedDict()

    def add(self, name: str, file: BodyFile) -> None:
        """Remember a body that the store has kept for a cassette."""
        self._kept[name, file.digest] = file
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def of(self, name: str) -> dict[str, BodyFile]:
        """Those of one cassette, by their digest."""
        return {digest: file for (of, digest), file in self._kept.items() if of == name}

    def forget(self, name: str) -> None:
        """A cassette is let go: what nothing refers to is removed from the store."""
        for at in [at for at in self._kept if at[0] == name]:
            del self._kept[at]


def _placed(file: BodyFile, found: Mapping[str, BodyFile]) -> BodyFile:
    kept = found.get(file.digest)
    if kept is None or kept.size != file.size:
        raise AdminError(
            f"no body of {file.size} bytes with the digest {file.digest} was sent for this "
            "cassette: PUT it below …/bodies/ first",
            status=422,
            code="body_missing",
        )
    return replace(kept, parts=file.parts)


async def outsourced(
    store: CassetteStore, name: str, items: Sequence[AnyInteraction]
) -> tuple[AnyInteraction, ...]:
    """The interactions as they would have been recorded: a large request is found by its digest.

    Raises StoreError; then nothing refers to what was kept by then.
    """
    if (keeper := store.capabilities.bodies) is None:
        return tuple(items)
    return tuple([await _outsourced(keeper, name, item) for item in items])


async def _outsourced(store: BodyKeeper, name: str, item: AnyInteraction) -> AnyInteraction:
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
    digester = BodyDigester(request.headers)
    digester.feed(request.body)
    kept: BodyFile = await store.keep(name, [request.body])
    return replace(request, body=b"", file=replace(kept, parts=digester.finish().parts))


async def _answered(store: BodyKeeper, name: str, response: Response) -> Response:
    chunk_times = ChunkTimes([(chunk.at_ms, len(chunk.data)) for chunk in response.chunks])
    kept = await store.keep(name, [chunk.data for chunk in response.chunks])
    return replace(response, chunks=(), file=kept, chunk_times=chunk_times)
