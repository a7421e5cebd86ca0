"""Copy a cassette into a store.

Until the copy was read back, it has the mark of an unfinished conversion, and a cassette that has the
final name stays as it is: the copy has a temporary name then.
"""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from tapeway.cli.cassette_arguments import check_persistent
from tapeway.cli.terminal import progress
from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.batches import (
    CassetteDigest,
    batches,
    is_unfinished,
    mark_unfinished,
    read_back,
    with_copied_bodies,
)
from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import ConfigError, OtherToolsFile, StoreError
from tapeway.paging import CassetteRef, CassetteWalk

_ENDING = ".converting"
_MAX_NAME = 128


BeginWalk = Callable[[], Awaitable[CassetteWalk]]
"""Begins a walk over the recordings to copy, at each call. Raises ConfigError, StoreError."""


async def copy_into_store(
    begin: BeginWalk, source: CassetteRef | None, to: CassetteRef, *, force: bool
) -> CassetteDigest:
    """Copy recordings and return the digest of what was read back.

    `source` is None for recordings of no store. Raises ConfigError if another cassette is there and `force` is not set, StoreError.
    """
    check_persistent(to.store)
    wanted = await begin()
    present = await walk_present(to)
    free = present is None or is_unfinished(present.head)
    if present is not None and not free:
        if (digest := await _digest_of_both(wanted, present)) is not None:
            return digest
        if not force:
            raise endpoints.already_exists(to.shown)
        wanted = await begin()
    draft = await _draft(to, free=free)
    await draft.store.save(draft.name, StoredCassette(mark_unfinished(wanted.head)))
    try:
        done = await _fill(source, wanted, draft, to)
        if draft is not to:
            await _swap(draft, to, force=force)
    except BaseException:
        with suppress(StoreError):
            await draft.store.remove(draft.name)
        raise
    return done


async def walk_present(to: CassetteRef) -> CassetteWalk | None:
    """The present cassette, if any; a foreign file under the name stays beside it."""
    try:
        return await to.find()
    except OtherToolsFile:
        return None


async def _digest_of_both(wanted: CassetteWalk, present: CassetteWalk) -> CassetteDigest | None:
    """The digest of two cassettes that hold the same, otherwise None."""
    if (wanted.head, wanted.count) != (present.head, present.count):
        return None
    one, other = CassetteDigest(), CassetteDigest()
    with progress("comparing", present.count) as step:
        async for stored in present.items:
            item = await anext(wanted.items, None)
            if item is None:
                return None
            one.add(item)
            other.add(stored)
            if not one.same(other):
                return None
            step(1)
    return one


async def _fill(
    source: CassetteRef | None, wanted: CassetteWalk, draft: CassetteRef, to: CassetteRef
) -> CassetteDigest:
    """Copy all recordings. Raises StoreError where they do not read back as they were written."""
    store, name, marked = draft.store, draft.name, mark_unfinished(wanted.head)
    if draft is not to and source is not None and source.name == to.name:
        await _refuse_own(source, draft)
    done = CassetteDigest()
    with progress("copying", wanted.count) as step:
        async for batch in batches(wanted.items, draft, done):
            await store.extend(name, marked, batch)
            step(len(batch))
    # A folder then reads the file, and not a journal.
    await store.replace_head(name, wanted.head)
    await read_back(done, draft)
    return done


async def _refuse_own(source: CassetteRef, draft: CassetteRef) -> None:
    """Raise ConfigError if the source is in the store of the copy, under another address."""
    if await replace(source, name=draft.name).find() is not None:
        raise ConfigError(f"{source.shown} is the source itself: give another target")


async def _swap(draft: CassetteRef, to: CassetteRef, *, force: bool) -> None:
    """Give the copy its final name, with `force` in place of a cassette that has the name."""
    present = None if force else await walk_present(to)
    if present is not None and not is_unfinished(present.head):
        raise endpoints.already_exists(to.shown)
    if (shared := to.store.shared) is not None:
        await shared.replace_cassette(to.name, draft.name)
        return
    # Claimed: another process that records into the cassette would overwrite the copy.
    with suppress(OtherToolsFile):
        await to.store.load(to.name, writable=True)
    stored = await draft.load(writable=True)
    items = [await with_copied_bodies(to, interaction) for interaction in stored.interactions]
    await to.store.save(to.name, StoredCassette(stored.head, tuple(items)))
    await to.store.remove(draft.name)


async def _draft(to: CassetteRef, *, free: bool) -> CassetteRef:
    """The cassette that is filled first. Raises ConfigError for one that is somebody's."""
    if to.store.shared is not None:
        # Each conversion has its own: two do not mix.
        return replace(to, name=_beside(to.name, f"{_ENDING}-{secrets.token_hex(4)}"))
    if free:
        # One process writes into it, and nothing has to stay.
        return to
    draft = replace(to, name=_beside(to.name, _ENDING))
    present = await walk_present(draft)
    if present is not None and not is_unfinished(present.head):
        raise endpoints.already_exists(CassetteRef.of(to.store, draft.name).shown)
    return draft


def _beside(name: str, ending: str) -> str:
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last[: _MAX_NAME - len(ending)]}{ending}"
