"""A cassette on its way from one place and format to another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from tapeway.body_files import pieces
from tapeway.cli.places import CassettePlace, place
from tapeway.cli.secrets import LEFT, Cleansing, FoundSecret
from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.batches import Digest, TransferSource, agree, is_marked, unmarked
from tapeway.cli.transfer.endpoints import Endpoint
from tapeway.cli.transfer.into_store import bring
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import ChunkTimes, ResponseChunk
from tapeway.core.redaction.known_values import KnownValues
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.registry import TAPEWAY
from tapeway.paging import CassetteWalk, walk_cassette, walk_over


@dataclass(slots=True)
class Converted:
    """What became of a cassette; `shown` is where it is now."""

    shown: str
    total: int = 0
    kept: int = 0
    digest: str = ""
    losses: list[Loss] = field(default_factory=list)
    found: list[FoundSecret] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether all of it is there, and no secret with it."""
        return self.kept == self.total and not any(each.deed == LEFT for each in self.found)


async def convert(
    one: Endpoint,
    other: Endpoint,
    store: str,
    known: KnownValues | None,
    fresh: CassetteHead,
    *,
    force: bool,
) -> Converted:
    """Read one end and write the other, verified; secrets are replaced where `known` is given.

    Raises ConfigError, StoreError and its children. A file is then as it was; a cassette that is
    brought into a store bit by bit is marked as unfinished, and goes on when this is called again.
    """
    if other.kind is not TAPEWAY and not force and other.path.exists():
        raise endpoints.taken(other.written)
    async with AsyncExitStack() as stack:
        losses: list[Loss] = []
        to = None
        if other.kind is TAPEWAY:
            to = await stack.enter_async_context(place(other.written, store))
        if one.kind is TAPEWAY:
            came = await stack.enter_async_context(place(one.written, store))
            return await _carried(
                TransferSource(came.shown, came.walk, came), to or other, known, losses, force=force
            )
        text = endpoints.content(one.path)
        head = fresh if to is None else await _begun(to) or fresh
        loaded = endpoints.read(one.path, text, one.kind, head)
        losses += loaded.losses

        async def walk() -> CassetteWalk:
            return walk_over(loaded.cassette)

        source = TransferSource(one.written, walk)
        return await _carried(source, to or other, known, losses, force=force, foreign=True)


async def copy(
    one: CassettePlace, other: CassettePlace, known: KnownValues | None, *, force: bool
) -> Converted:
    """The same for cassettes in stores that are open."""
    return await _carried(TransferSource(one.shown, one.walk, one), other, known, [], force=force)


async def _begun(to: CassettePlace) -> CassetteHead | None:
    # A file that says nothing of itself is given a head anew each time: one that was begun keeps its.
    present = await walk_cassette(to.store, to.name)
    return unmarked(present.head) if present is not None and is_marked(present.head) else None


async def _carried(
    came: TransferSource,
    to: CassettePlace | Endpoint,
    known: KnownValues | None,
    losses: list[Loss],
    *,
    force: bool,
    foreign: bool = False,
) -> Converted:
    cleansing = None if known is None else Cleansing(came.shown, known, foreign=foreign)

    async def anew() -> CassetteWalk:
        found = await came.anew()
        if not isinstance(to, CassettePlace):
            found = replace(found, items=_inlined(found.items))
        return found if cleansing is None else cleansing.walk(found)

    source = replace(came, anew=anew)
    done = Converted(to.shown if isinstance(to, CassettePlace) else to.written, losses=losses)
    left_out = sum(1 for loss in losses if loss.left_out)
    if isinstance(to, CassettePlace):
        digest = await bring(source, to, force=force)
        done.total = digest.count + left_out
    else:
        cassette = await _whole(await source.walk())
        digest = _into_file(cassette, to, losses, force=force)
        done.total = len(cassette.interactions) + left_out
    done.kept, done.digest = digest.count, digest.text
    if cleansing is not None:
        done.found = cleansing.found
    return done


def _into_file(
    cassette: StoredCassette, to: Endpoint, losses: list[Loss], *, force: bool
) -> Digest:
    written = endpoints.saved(to.kind, cassette)
    losses += written.losses
    wanted = Digest()
    for index, item in enumerate(cassette.interactions):
        if index not in written.left_out:
            wanted.add(item)

    def check(text: bytes) -> None:
        found = Digest()
        for item in endpoints.read(to.path, text, to.kind, cassette.head).cassette.interactions:
            found.add(item)
        agree(wanted, found, to.written)

    endpoints.write(to.path, written.text, check, force=force)
    return wanted


async def _whole(found: CassetteWalk) -> StoredCassette:
    return StoredCassette(found.head, tuple([item async for item in found.items]))


async def _inlined(items: AsyncIterator[AnyInteraction]) -> AsyncIterator[AnyInteraction]:
    async for item in items:
        yield await asyncio.to_thread(_with_bodies, item)


def _with_bodies(item: AnyInteraction) -> AnyInteraction:
    if not isinstance(item, Interaction):
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = replace(request, file=None, body=b"".join(pieces(request.file)))
    if response.file is not None:
        data = memoryview(b"".join(pieces(response.file)))
        chunks, start = [], 0
        for at_ms, length in response.chunk_times:
            chunks.append(ResponseChunk(bytes(data[start : start + length]), at_ms))
            start += length
        response = replace(response, file=None, chunk_times=ChunkTimes(), chunks=tuple(chunks))
    return replace(item, request=request, response=response)
