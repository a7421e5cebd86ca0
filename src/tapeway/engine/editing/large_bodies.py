"""Large bodies of appended or imported interactions.

A client uploads large bodies before the interactions. A body inside an interaction is moved to the
store's place for large bodies.
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
from tapeway.core.model.messages import LARGE_BODY, BodyFile, Request, Response
from tapeway.core.redaction.spans import placeholders_of
from tapeway.errors import AdminError
from tapeway.ports import CassetteStore

_MOST_BODIES = 4096


def by_digest(items: Iterable[AnyInteraction]) -> dict[str, BodyFile]:
    """The large bodies of the interactions, by digest."""
    return {file.digest: file for item in items for file in large_bodies(item)}


def with_stored_bodies(item: AnyInteraction, stored: Mapping[str, BodyFile]) -> AnyInteraction:
    """The interaction with stored large bodies. Raises AdminError (422) for a missing body."""
    return replace_large_bodies(item, lambda file: _stored_body(file, stored))


class UploadedBodies:
    """The last bodies that were uploaded, over all cassettes."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[tuple[str, str], BodyFile] = OrderedDict()

    def add(self, name: str, file: BodyFile) -> None:
        """Remember a body that is stored for a cassette."""
        self._bodies[name, file.digest] = file
        while len(self._bodies) > _MOST_BODIES:
            self._bodies.popitem(last=False)

    def of(self, name: str) -> dict[str, BodyFile]:
        """The bodies of one cassette, by digest."""
        return {digest: file for (of, digest), file in self._bodies.items() if of == name}

    def forget(self, name: str) -> None:
        """Forget the bodies of an unloaded cassette: the store removes those nothing refers to."""
        for at in [at for at in self._bodies if at[0] == name]:
            del self._bodies[at]


def _stored_body(file: BodyFile, stored: Mapping[str, BodyFile]) -> BodyFile:
    kept = stored.get(file.digest)
    if kept is None or kept.size != file.size:
        raise AdminError(
            f"no body of {file.size} bytes with the digest {file.digest} was sent for this "
            "cassette: PUT it below …/bodies/ first",
            status=422,
            code="body_missing",
        )
    return file.copied_to(kept)


async def moved_to_files(
    store: CassetteStore, name: str, items: Sequence[AnyInteraction]
) -> tuple[AnyInteraction, ...]:
    """The interactions with bodies of more than 1 MiB moved to the store, as a recording has them.

    Raises StoreError; then nothing refers to what was stored by then.
    """
    return tuple([await _moved_to_files(store, name, item) for item in items])


async def _moved_to_files(store: CassetteStore, name: str, item: AnyInteraction) -> AnyInteraction:
    if not isinstance(item, Interaction):
        return item
    request, response = item.request, item.response
    if len(request.body) > LARGE_BODY:
        request = await _move_request(store, name, request)
    if len(response.body) > LARGE_BODY:
        response = await _move_response(store, name, response)
    if request is item.request and response is item.response:
        return item
    return replace(item, request=request, response=response)


async def _move_request(store: CassetteStore, name: str, request: Request) -> Request:
    digester = BodyDigester(request.fields)
    digester.feed(request.body)
    kept: BodyFile = await store.keep(name, [request.body])
    described = replace(digester.finish(), placeholders=placeholders_of(request.body))
    return replace(request, body=b"", file=described.copied_to(kept))


async def _move_response(store: CassetteStore, name: str, response: Response) -> Response:
    return replace(response, body=b"", file=await store.keep(name, [response.body]))
