"""Copy a cassette from one place and format to another, redacted and verified."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from tapeway.body_files import in_memory
from tapeway.cli.cassette_arguments import opened, with_bases
from tapeway.cli.secrets import LEFT, CassetteScan, FoundSecret, redacted
from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.batches import CassetteDigest, check_same, is_unfinished
from tapeway.cli.transfer.endpoints import FormatFile
from tapeway.cli.transfer.into_store import copy_into_store, walk_present
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import ConfigError
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.other_tools.reading.http_call import with_match_key
from tapeway.paging import CassetteRef, CassetteWalk, walk_over


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
    source: CassetteRef | FormatFile | Sequence[FormatFile],
    target: CassetteRef | FormatFile,
    known: KnownValues | None,
    fresh: CassetteHead,
    *,
    force: bool,
    flatten: bool = False,
) -> ConversionResult:
    """Read a cassette, or files in order, and write the target; stores are not open yet.

    With `flatten` the target has what the cassette has from its bases too. Secrets are replaced if `known` is given. `fresh` becomes the head if the source has none. Raises
    ConfigError, StoreError and its children: the target is then unchanged.
    """
    if isinstance(target, FormatFile) and not force and target.path.exists():
        raise endpoints.already_exists(target.shown)
    async with AsyncExitStack() as stack:
        for end in (target, source):
            if isinstance(end, CassetteRef):
                await stack.enter_async_context(opened(end.store))
        if isinstance(source, CassetteRef):
            whole = await with_bases(source) if flatten else source
            return await copy(whole, target, known, force=force)
        sources = [source] if isinstance(source, FormatFile) else source
        return await import_files(sources, target, known, fresh, force=force)


async def import_files(
    sources: Sequence[FormatFile],
    to: CassetteRef | FormatFile,
    known: KnownValues | None,
    fresh: CassetteHead,
    *,
    force: bool,
) -> ConversionResult:
    """Convert files in order into a cassette of an open store or into a file."""
    head = fresh if isinstance(to, FormatFile) else await _head_of(to, force=force) or fresh
    losses: list[Loss] = []
    items: list[AnyInteraction] = []
    for source in sources:
        text = endpoints.read_file(source.path)
        imported = endpoints.parse(source.path, text, source.format, head)
        head = imported.cassette.head
        within = f" (in {source.shown})" if len(sources) > 1 else ""
        losses += [replace(loss, what=f"{loss.what}{within}") for loss in imported.losses]
        items += [
            replace(interaction, index=len(items) + position)
            for position, interaction in enumerate(imported.cassette.interactions)
        ]
    shown = ", ".join([source.shown for source in sources])
    cassette = StoredCassette(head, tuple(items))
    return await _transfer(cassette, shown, to, known, losses, force=force)


async def copy(
    source: CassetteRef, to: CassetteRef | FormatFile, known: KnownValues | None, *, force: bool
) -> ConversionResult:
    """Copy a cassette of an open store into an open store or into a file."""
    return await _transfer(source, source.shown, to, known, [], force=force)


async def _head_of(to: CassetteRef, *, force: bool) -> CassetteHead | None:
    # A file without a head would get a new head each time, and never match the present cassette.
    present = await walk_present(to)
    return None if present is None or force or is_unfinished(present.head) else present.head


async def _transfer(
    source: CassetteRef | StoredCassette,
    shown: str,
    to: CassetteRef | FormatFile,
    known: KnownValues | None,
    losses: list[Loss],
    *,
    force: bool,
) -> ConversionResult:
    result = ConversionResult(to.shown, losses=losses)

    async def begin() -> CassetteWalk:
        walk = walk_over(source) if isinstance(source, StoredCassette) else await source.walk()
        if is_unfinished(walk.head):
            raise ConfigError(f"{shown} is what an interrupted conversion left behind: remove it")
        if isinstance(to, FormatFile):
            # Formats of further tools have no files for large bodies.
            items = walk.items
            walk = replace(walk, items=(await in_memory(item) async for item in items))
        if known is None:
            return walk
        scanned = CassetteScan(shown, walk.head, known)
        # Each pass finds them again.
        result.secrets = scanned.outcomes
        items = _redacted(scanned, walk.items, foreign=isinstance(source, StoredCassette))
        return replace(walk, head=scanned.head, items=items)

    left_out = sum(1 for loss in losses if loss.left_out)
    if isinstance(to, CassetteRef):
        place = source if isinstance(source, CassetteRef) else None
        digest = await copy_into_store(begin, place, to, force=force)
        result.total = digest.count + left_out
    else:
        walk = await begin()
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
    cassette: StoredCassette, to: FormatFile, losses: list[Loss], *, force: bool
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
        check_same(wanted, digest, to.shown)

    endpoints.write_file(to.path, exported.text, check, force=force)
    return wanted
