"""A cassette brought into a store and verified: bit by bit where the store takes it so.

Until all of it is there and has been read back, such a cassette is marked as unfinished; what broke
off goes on behind what came across.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from tapeway.cli import foreign_file
from tapeway.cli.digest import Digest, digest_of
from tapeway.cli.places import Place, check_lasting
from tapeway.cli.progress import progress
from tapeway.core.model import BodyFile, CassetteHead, Interaction, Recording, StoredCassette
from tapeway.core.shared import Held
from tapeway.errors import ConfigError, StoreError
from tapeway.ports import BodyKeeper, CassetteStore, Editable, Extensible
from tapeway.spool import pieces
from tapeway.stores import walking
from tapeway.stores.unfinished import is_marked, marked, unmarked
from tapeway.stores.walking import Walk, weight

_MOST_ITEMS = 500
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be brought, and where it is; `anew` goes through it from its beginning."""

    shown: str
    anew: Callable[[], Awaitable[Walk]]

    async def walk(self) -> Walk:
        """The same. Raises ConfigError for what is itself the beginning of a cassette."""
        found = await self.anew()
        if is_marked(found.head):
            raise ConfigError(
                f"{self.shown} is the beginning of a cassette: finish its conversion first"
            )
        return found


async def bring(source: Source, to: Place, *, force: bool) -> Digest:
    """Put a cassette there and give the digest of what came back.

    Raises ConfigError where there is another one and that is not forced, StoreError.
    """
    check_lasting(to.store)
    if isinstance(to.store, Editable):
        return await _bit_by_bit(source, to, to.store, force=force)
    return await _at_once(source, to, force=force)


def agree(wanted: Digest, found: Digest, shown: str) -> None:
    """Raise StoreError where what was read again is not what was wanted."""
    if not found.same(wanted):
        raise StoreError(
            f"{shown}: interactions[{wanted.parting(found)}] does not come back as it was written; "
            "nothing can be relied on there, and the source is as it was"
        )


async def _at_once(source: Source, to: Place, *, force: bool) -> Digest:
    # Whoever records into it would write over what is saved here.
    present = await to.store.load(to.name, writable=True)
    wanted = await source.walk()
    if present is not None:
        done = await _beginning(wanted, walking.over(present))
        if done is not None and await _ended(wanted):
            return done
        if not force:
            raise foreign_file.taken(to.shown)
        wanted = await source.walk()
    done, items = Digest(), []
    with progress("copying", wanted.count) as step:
        async for item in wanted.items:
            done.add(item)
            items.append(await _kept(to, item))
            step(1)
    await to.store.save(to.name, StoredCassette(wanted.head, tuple(items)))
    return await _verified(done, to)


async def _verified(wanted: Digest, to: Place) -> Digest:
    again, found = await to.walk(), Digest()
    with progress("checking", again.count) as step:
        async for item in again.items:
            found.add(item)
            step(1)
    agree(wanted, found, to.shown)
    return found


async def _bit_by_bit(source: Source, to: Place, store: Editable, *, force: bool) -> Digest:
    wanted = await source.walk()
    done = None
    present = await walking.walk(to.store, to.name)
    if present is not None:
        unfinished = is_marked(present.head)
        done = await _beginning(wanted, present)
        if not unfinished and done is not None and await _ended(wanted):
            return done
        done = done if unfinished else None
        if done is None:
            if not force:
                raise _other_beginning(to) if unfinished else foreign_file.taken(to.shown)
            wanted = await _cleared(source, to, store, present.head)
    if done is None:
        done = Digest()
        await to.store.save(to.name, StoredCassette(marked(wanted.head)))
    await _add_all(wanted, to, done)
    found = await _verified(done, to)
    await store.restate(to.name, wanted.head)
    outline = await store.outline(to.name)
    if outline is None or (outline.head, outline.count) != (wanted.head, found.count):
        raise StoreError(f"{to.shown} was changed by somebody while it came into being: look at it")
    return found


def _other_beginning(to: Place) -> ConfigError:
    return ConfigError(
        f"{to.shown} holds the beginning of another conversion: give another name, or --force to "
        "begin anew"
    )


async def _beginning(wanted: Walk, present: Walk) -> Digest | None:
    """The digest of what is there where that is how the wanted one begins, which stands behind it."""
    if unmarked(present.head) != wanted.head:
        return None
    done = Digest()
    with progress("comparing", present.count) as step:
        async for held in present.items:
            item = await anext(wanted.items, None)
            if item is None or digest_of(item) != digest_of(held):
                return None
            done.add(item)
            step(1)
    return done


async def _ended(wanted: Walk) -> bool:
    return await anext(wanted.items, None) is None


async def _cleared(source: Source, to: Place, store: Editable, head: CassetteHead) -> Walk:
    # One place can have many addresses: whether it is the source shows when it is marked.
    await store.restate(to.name, marked(head))
    wanted = await source.anew()
    if is_marked(wanted.head):
        await store.restate(to.name, head)
        raise ConfigError(f"{to.shown} is what is to be read: give another place to write it to")
    await to.store.remove(to.name)
    return wanted


async def _add_all(wanted: Walk, to: Place, done: Digest) -> None:
    with progress("copying", wanted.count) as step:
        step(done.count)
        async for batch in _batches(wanted.items):
            for item in batch:
                done.add(item)
            kept = [await _kept(to, item) for item in batch]
            await _add(to.store, to.name, marked(wanted.head), kept, done.count - len(kept))
            step(len(kept))


async def _batches(items: AsyncIterator[Held]) -> AsyncIterator[list[Held]]:
    batch: list[Held] = []
    heavy = 0
    async for item in items:
        batch.append(item)
        heavy += weight(item)
        if len(batch) == _MOST_ITEMS or heavy >= _MOST_BYTES:
            yield batch
            batch, heavy = [], 0
    if batch:
        yield batch


async def _add(
    store: CassetteStore, name: str, head: CassetteHead, items: list[Held], start: int
) -> None:
    numbered = [replace(each, index=start + at) for at, each in enumerate(items)]
    if isinstance(store, Extensible):
        await store.extend(name, head, numbered)
        return
    # Together, so that a store may make them durable together.
    await asyncio.gather(*[store.append(name, head, Recording(each)) for each in numbered])


async def _kept(to: Place, item: Held) -> Held:
    if not isinstance(item, Interaction):
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = replace(request, file=await _copied(to, request.file))
    if response.file is not None:
        response = replace(response, file=await _copied(to, response.file))
    return replace(item, request=request, response=response)


async def _copied(to: Place, file: BodyFile) -> BodyFile:
    if not isinstance(to.store, BodyKeeper):
        raise StoreError(f"{to.store.url} takes no large bodies, and this cassette has some")
    kept = await to.store.keep(to.name, pieces(file))
    if kept.digest != file.digest:
        raise StoreError(f"{file.path} was changed since it was recorded: restore it")
    return replace(kept, parts=file.parts)
