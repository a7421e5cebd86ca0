"""A cassette brought into a store and verified, in steps of which each is durable.

Until all of it is there and has been read back, such a cassette is marked as unfinished; what broke
off goes on behind what came across. One that is to be replaced stays whole until then.
"""

import secrets
from dataclasses import replace

from tapeway.cli.places import CassettePlace, check_lasting
from tapeway.cli.terminal import progress
from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.batches import (
    Digest,
    TransferSource,
    add,
    batches,
    beginning,
    ended,
    is_marked,
    marked,
    verified,
)
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import ConfigError, StoreError
from tapeway.paging import CassetteWalk, walk_cassette, walk_over
from tapeway.ports import HeadEditor

_BESIDE = ".converting"
_LONGEST = 128


async def bring(source: TransferSource, to: CassettePlace, *, force: bool) -> Digest:
    """Put a cassette there and give the digest of what came back.

    Raises ConfigError where there is another one and that is not forced, StoreError.
    """
    check_lasting(to.store)
    if (editor := to.store.capabilities.head_editor) is not None:
        return await _into_database(source, to, editor, force=force)
    return await _into_file(source, to, force=force)


async def _into_file(source: TransferSource, to: CassettePlace, *, force: bool) -> Digest:
    # Whoever records into it would write over what is saved here.
    present = await to.store.load(to.name, writable=True)
    wanted = await source.walk()
    done, items = Digest(), list[AnyInteraction]()
    if present is not None:
        found = await beginning(wanted, walk_over(present))
        unfinished = is_marked(present.head)
        if found is not None and not unfinished and await ended(wanted):
            return found
        if found is not None and unfinished:
            done, items = found, [*present.interactions]
        elif not force:
            raise _other_beginning(to) if unfinished else endpoints.taken(to.shown)
        else:
            wanted = await source.walk()
    # One that is to be replaced stays as it is until there is another one.
    noted = present is None or bool(items)
    items += await _rest(wanted, to, done, noted=noted)
    await to.store.save(to.name, StoredCassette(wanted.head, tuple(items)))
    return await verified(done, to)


async def _rest(
    wanted: CassetteWalk, to: CassettePlace, done: Digest, *, noted: bool
) -> list[AnyInteraction]:
    """What is still to come; all but the last batch is `noted`, so that it need not come again."""
    items, last = list[AnyInteraction](), list[AnyInteraction]()
    with progress("copying", wanted.count) as step:
        step(done.count)
        async for batch in batches(wanted.items, to, done):
            if noted and last:
                await add(to.store, to.name, marked(wanted.head), last)
            items += batch
            last = batch
            step(len(batch))
    return items


async def _into_database(
    source: TransferSource, to: CassettePlace, editor: HeadEditor, *, force: bool
) -> Digest:
    wanted = await source.walk()
    present = await walk_cassette(to.store, to.name)
    if present is None or is_marked(present.head):
        return await _filled(source, wanted, to, editor, force=force)
    done = await beginning(wanted, present)
    if done is not None and await ended(wanted):
        return done
    if not force:
        raise endpoints.taken(to.shown)
    if (replacer := to.store.capabilities.replacer) is None:
        return await _into_file(source, to, force=force)
    beside = _beside(to)
    done = await _filled(source, await source.walk(), beside, editor, force=force)
    await replacer.supplant(to.name, beside.name)
    await _check(to, wanted.head, done.count)
    return done


async def _filled(
    source: TransferSource,
    wanted: CassetteWalk,
    to: CassettePlace,
    editor: HeadEditor,
    *,
    force: bool,
) -> Digest:
    """A cassette there that holds nothing else. Raises ConfigError where one does."""
    present = await walk_cassette(to.store, to.name)
    done = None
    if present is not None:
        done = await beginning(wanted, present)
        if done is None:
            if not is_marked(present.head):
                raise endpoints.taken(to.shown)
            if not force:
                raise _other_beginning(to)
            await to.store.remove(to.name)
            wanted = await source.walk()
    # Whoever else converts into it finds another mark than its own, and leaves it.
    mark = marked(wanted.head, by=secrets.token_hex(8))
    if done is None:
        done = Digest()
        await to.store.save(to.name, StoredCassette(mark))
    else:
        await editor.restate(to.name, mark)
    await _refuse_own(source, to, mark)
    await _add_all(wanted, to, mark, done)
    found = await verified(done, to)
    await _check(to, mark, found.count)
    await editor.restate(to.name, wanted.head)
    await _check(to, wanted.head, found.count)
    return found


async def _add_all(
    wanted: CassetteWalk, to: CassettePlace, mark: CassetteHead, done: Digest
) -> None:
    with progress("copying", wanted.count) as step:
        step(done.count)
        async for batch in batches(wanted.items, to, done):
            await _check(to, mark, done.count - len(batch))
            await add(to.store, to.name, mark, batch)
            step(len(batch))


async def _check(to: CassettePlace, head: CassetteHead, count: int) -> None:
    found = await walk_cassette(to.store, to.name)
    if found is None or (found.head, found.count) != (head, count):
        raise StoreError(
            f"{to.shown} was changed by somebody while it came into being: is it converted or "
            "recorded into elsewhere? Run it again when that is over"
        )


async def _refuse_own(source: TransferSource, to: CassettePlace, mark: CassetteHead) -> None:
    """Raise ConfigError where this stands beside the source itself, to be put in its place."""
    if source.place is None or _beside(source.place).name != to.name:
        return
    same = await walk_cassette(source.place.store, to.name)
    if same is not None and same.head == mark:
        await to.store.remove(to.name)
        raise _is_the_source(source.place)


def _beside(to: CassettePlace) -> CassettePlace:
    """Where a cassette comes into being that is to take the place of this one."""
    folder, slash, last = to.name.rpartition("/")
    name = f"{folder}{slash}{last[: _LONGEST - len(_BESIDE)]}{_BESIDE}"
    return replace(to, name=name, shown=f"{to.store.url}#{name}")


def _is_the_source(to: CassettePlace) -> ConfigError:
    return ConfigError(f"{to.shown} is what is to be read: give another place to write it to")


def _other_beginning(to: CassettePlace) -> ConfigError:
    return ConfigError(
        f"{to.shown} holds the beginning of another conversion: give another name, or --force to "
        "begin anew"
    )
