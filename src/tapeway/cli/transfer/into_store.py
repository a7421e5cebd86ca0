"""Copy a cassette into a store in durable steps, and verify the copy in the store.

The copy has the mark of an unfinished conversion until the whole copy was read back: a second run
resumes an interrupted conversion. A cassette to be replaced stays unchanged until then: the copy is
filled
beside that cassette, under a temporary name.
"""

import secrets
from dataclasses import replace

from tapeway.cli.cassette_arguments import CassetteInStore, check_persistent
from tapeway.cli.terminal import progress
from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.batches import (
    CassetteDigest,
    TransferSource,
    at_end,
    batches,
    compare_beginning,
    is_unfinished,
    mark_unfinished,
    read_back,
    with_copied_bodies,
)
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.errors import ConfigError, OtherToolsFile, StoreError
from tapeway.paging import CassetteWalk, walk_cassette

_BESIDE = ".converting"
_MAX_NAME = 128


async def copy_into_store(
    source: TransferSource, to: CassetteInStore, *, force: bool
) -> CassetteDigest:
    """Copy a cassette and return the digest of what was read back.

    Raises ConfigError if another cassette is there and `force` is not set, StoreError.
    """
    check_persistent(to.store)
    wanted = await source.walk()
    present = await walk_present(to)
    if present is None or is_unfinished(present.head):
        return await _fill(source, wanted, to, force=force)
    beginning = await compare_beginning(wanted, present)
    if beginning is not None and await at_end(wanted):
        return beginning
    if not force:
        raise endpoints.already_exists(to.shown)
    beside = _unfinished_copy(to)
    done = await _fill(source, await source.walk(), beside, force=force)
    if (shared := to.store.shared) is not None:
        await shared.replace_cassette(to.name, beside.name)
        await _check_unchanged(to, wanted.head, done.count)
        return done
    return await _replace(to, beside, done)


async def walk_present(to: CassetteInStore) -> CassetteWalk | None:
    """The present cassette, if any; a foreign file under the name stays beside it."""
    try:
        return await walk_cassette(to.store, to.name)
    except OtherToolsFile:
        return None


async def _replace(
    to: CassetteInStore, beside: CassetteInStore, done: CassetteDigest
) -> CassetteDigest:
    """Save the copy under its final name, with the large bodies, and remove the temporary copy."""
    # Claimed: another process that records into the cassette would overwrite the copy.
    await to.store.load(to.name, writable=True)
    stored = await beside.load(writable=True)
    items = [await with_copied_bodies(to, interaction) for interaction in stored.interactions]
    await to.store.save(to.name, StoredCassette(stored.head, tuple(items)))
    copied = await read_back(done, to)
    await to.store.remove(beside.name)
    return copied


async def _fill(
    source: TransferSource,
    wanted: CassetteWalk,
    to: CassetteInStore,
    *,
    force: bool,
) -> CassetteDigest:
    """A cassette that holds exactly the wanted recordings. Raises ConfigError if another does."""
    present = await walk_present(to)
    done = None
    if present is not None:
        done = await compare_beginning(wanted, present)
        if done is None:
            if not is_unfinished(present.head):
                raise endpoints.already_exists(to.shown)
            if not force:
                raise _other_conversion(to)
            await to.store.remove(to.name)
            wanted = await source.walk()
    # Another conversion into this cassette finds a foreign mark, and stops.
    marked_head = mark_unfinished(wanted.head, by=secrets.token_hex(8))
    if done is None:
        done = CassetteDigest()
        await to.store.save(to.name, StoredCassette(marked_head))
    else:
        await to.store.replace_head(to.name, marked_head)
    await _refuse_own(source, to, marked_head)
    await _append_all(wanted, to, marked_head, done)
    if not to.store.facts.paged:
        # It is read from its file then, and not from a journal.
        await to.store.replace_head(to.name, wanted.head)
        return await read_back(done, to)
    copied = await read_back(done, to)
    await _check_unchanged(to, marked_head, copied.count)
    await to.store.replace_head(to.name, wanted.head)
    await _check_unchanged(to, wanted.head, copied.count)
    return copied


async def _append_all(
    wanted: CassetteWalk,
    to: CassetteInStore,
    marked_head: CassetteHead,
    done: CassetteDigest,
) -> None:
    with progress("copying", wanted.count) as step:
        step(done.count)
        async for batch in batches(wanted.items, to, done):
            await _check_unchanged(to, marked_head, done.count - len(batch))
            await to.store.extend(to.name, marked_head, batch)
            step(len(batch))


async def _check_unchanged(to: CassetteInStore, head: CassetteHead, count: int) -> None:
    if not to.store.facts.paged:
        # One process writes into the file, and every look would read the whole file.
        return
    present = await walk_cassette(to.store, to.name)
    if present is None or (present.head, present.count) != (head, count):
        raise StoreError(
            f"{to.shown} was changed by somebody while it was written: does another process convert "
            "or record into it? Run this again when it is done"
        )


async def _refuse_own(
    source: TransferSource, to: CassetteInStore, marked_head: CassetteHead
) -> None:
    """Raise ConfigError if `to` is a copy beside the source: the target is the source itself."""
    if source.place is None or _unfinished_copy(source.place).name != to.name:
        return
    same = await walk_cassette(source.place.store, to.name)
    if same is not None and same.head == marked_head:
        await to.store.remove(to.name)
        raise ConfigError(f"{source.place.shown} is the source itself: give another target")


def _unfinished_copy(to: CassetteInStore) -> CassetteInStore:
    """The cassette that is filled first and then moved into place."""
    folder, slash, last = to.name.rpartition("/")
    name = f"{folder}{slash}{last[: _MAX_NAME - len(_BESIDE)]}{_BESIDE}"
    return replace(to, name=name, shown=f"{to.store.url}#{name}")


def _other_conversion(to: CassetteInStore) -> ConfigError:
    return ConfigError(
        f"{to.shown} holds the beginning of another conversion: give another name, or --force to "
        "start over"
    )
