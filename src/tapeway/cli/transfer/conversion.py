"""Copy a cassette from one place and format to another, redacted and verified."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from tapeway.body_files import in_memory
from tapeway.cli.cassette_arguments import CassetteInStore, open_cassette
from tapeway.cli.secrets import LEFT, CassetteScan, FoundSecret, redacted
from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.batches import (
    CassetteDigest,
    TransferSource,
    check_same,
    is_unfinished,
)
from tapeway.cli.transfer.endpoints import Endpoint
from tapeway.cli.transfer.into_store import copy_into_store, walk_present
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.redaction.known_values import KnownValues
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.other_tools.reading.http_call import with_match_key
from tapeway.paging import CassetteWalk, walk_over


@dataclass(slots=True)
class ConversionResult:
    """The result of a conversion: what was written and where, losses, and secrets."""

    shown: str
    total: int = 0
    written: int = 0
    digest: str = ""
    losses: list[Loss] = field(default_factory=list)
    secrets: list[FoundSecret] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every interaction was written, and no secret with them."""
        return self.written == self.total and not any(
            secret.outcome == LEFT for secret in self.secrets
        )


async def convert(
    sources: Sequence[Endpoint],
    target: Endpoint,
    store: str,
    known: KnownValues | None,
    fresh: CassetteHead,
    *,
    force: bool,
) -> ConversionResult:
    """Read a cassette, or other tools' files, and write the target.

    Secrets are replaced if `known` is given. `fresh` becomes the head if the source has none. Raises
    ConfigError, StoreError and its children: the target is then unchanged.
    """
    if not target.is_in_store and not force and target.path.exists():
        raise endpoints.already_exists(target.argument)
    async with AsyncExitStack() as stack:
        to = None
        if target.is_in_store:
            to = await stack.enter_async_context(open_cassette(target.argument, store))
        if [source.is_in_store for source in sources] == [True]:
            cassette = await stack.enter_async_context(open_cassette(sources[0].argument, store))
            return await _transfer(_from_store(cassette), to or target, known, [], force=force)
        return await import_files(sources, to or target, known, fresh, force=force)


async def import_files(
    sources: Sequence[Endpoint],
    to: CassetteInStore | Endpoint,
    known: KnownValues | None,
    fresh: CassetteHead,
    *,
    force: bool,
) -> ConversionResult:
    """Convert files of other tools in order into an open store or into a file."""
    head = fresh if isinstance(to, Endpoint) else await _head_of(to, force=force) or fresh
    losses: list[Loss] = []
    items: list[AnyInteraction] = []
    for source in sources:
        text = endpoints.read_file(source.path)
        imported = endpoints.parse(source.path, text, source.format, head)
        head = imported.cassette.head
        within = f" (in {source.argument})" if len(sources) > 1 else ""
        losses += [replace(loss, what=f"{loss.what}{within}") for loss in imported.losses]
        items += [
            replace(interaction, index=len(items) + position)
            for position, interaction in enumerate(imported.cassette.interactions)
        ]
    cassette = StoredCassette(head, tuple(items))

    async def start() -> CassetteWalk:
        return walk_over(cassette)

    shown = ", ".join([source.argument for source in sources])
    walked = TransferSource(shown, start)
    return await _transfer(walked, to, known, losses, force=force, foreign=True)


async def copy(
    source: CassetteInStore, target: CassetteInStore, known: KnownValues | None, *, force: bool
) -> ConversionResult:
    """Copy a cassette between two open stores."""
    return await _transfer(_from_store(source), target, known, [], force=force)


def _from_store(cassette: CassetteInStore) -> TransferSource:
    return TransferSource(cassette.shown, cassette.walk, cassette)


async def _head_of(to: CassetteInStore, *, force: bool) -> CassetteHead | None:
    # A file without a head would get a new head each time, and never match the present cassette.
    present = await walk_present(to)
    return None if present is None or force or is_unfinished(present.head) else present.head


async def _transfer(
    source: TransferSource,
    to: CassetteInStore | Endpoint,
    known: KnownValues | None,
    losses: list[Loss],
    *,
    force: bool,
    foreign: bool = False,
) -> ConversionResult:
    shown = to.shown if isinstance(to, CassetteInStore) else to.argument
    result = ConversionResult(shown, losses=losses)

    async def start() -> CassetteWalk:
        walk = await source.start()
        if not isinstance(to, CassetteInStore):
            # Formats of further tools have no files for large bodies.
            items = walk.items
            walk = replace(walk, items=(await in_memory(item) async for item in items))
        if known is None:
            return walk
        scanned = CassetteScan(source.shown, walk.head, known)
        # Each pass finds them again.
        result.secrets = scanned.outcomes
        return replace(
            walk, head=scanned.head, items=_redacted(scanned, walk.items, foreign=foreign)
        )

    redacted_source = replace(source, start=start)
    left_out = sum(1 for loss in losses if loss.left_out)
    if isinstance(to, CassetteInStore):
        digest = await copy_into_store(redacted_source, to, force=force)
        result.total = digest.count + left_out
    else:
        walk = await redacted_source.walk()
        cassette = StoredCassette(walk.head, tuple([item async for item in walk.items]))
        digest = _into_file(cassette, to, losses, force=force)
        result.total = len(cassette.interactions) + left_out
    result.written, result.digest = digest.count, digest.text
    return result


async def _redacted(
    scanned: CassetteScan, items: AsyncIterator[AnyInteraction], *, foreign: bool
) -> AsyncIterator[AnyInteraction]:
    async for item, without in redacted(scanned, items):
        if foreign and without is not item and isinstance(without, Interaction):
            # The key that was computed before would be a hash over the secret.
            yield with_match_key(without)
        else:
            yield without


def _into_file(
    cassette: StoredCassette, to: Endpoint, losses: list[Loss], *, force: bool
) -> CassetteDigest:
    exported = endpoints.serialize(to.format, cassette)
    losses += exported.losses
    wanted = CassetteDigest()
    for position, item in enumerate(cassette.interactions):
        if position not in exported.left_out:
            wanted.add(item)

    def check(text: bytes) -> None:
        digest = CassetteDigest()
        for item in endpoints.parse(to.path, text, to.format, cassette.head).cassette.interactions:
            digest.add(item)
        check_same(wanted, digest, to.argument)

    endpoints.write_file(to.path, exported.text, check, force=force)
    return wanted
