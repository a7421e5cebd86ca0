"""A fixed piece of work on a store, to be broken off at any call of it: `fixed_work URL`.

It writes what was acknowledged, a line each: `+ 3` recorded, `- 0` replaced or removed, `full 4` for
what found no room and `failed 5` for what failed otherwise; it goes on after a failure.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable
from dataclasses import replace

from tapeway.errors import StoreError, StoreFull
from tapeway.ports import CassetteStore
from tapeway.stores.file import store as file_store
from tapeway.stores.opening import open_store
from tests.stores.large_bodies import kept, large
from tests.stores.recordings import HEAD, exchanges, recording

LARGE = b"0123456789" * 900


async def work(url: str, output: int) -> None:
    """Record two, replace one, record three at once, then one with a large body; remove one."""
    # Calls are counted in each thread for itself.
    file_store.THREADS = 1
    store = open_store(url)
    try:
        await store.open()
        if await _noted(store.append("x", HEAD, recording(0)), output, 0):
            await _noted(store.append("x", HEAD, recording(1, 0)), output, 1, 0)
        await asyncio.gather(
            *[_noted(store.append("x", HEAD, recording(n)), output, n) for n in (2, 3, 4)]
        )
        await _noted(_record_large(store), output, 5)
        await _noted(_remove(store, 2), output, None, 2)
        await _noted(store.append("y", HEAD, recording(6)), output, 6)
        await _noted(store.release("x"), output, None)
        await _noted(store.append("y", HEAD, recording(7)), output, 7)
        await store.close()
    except StoreError as exc:
        _write(output, f"! {exc.message}")


async def _record_large(store: CassetteStore) -> None:
    file = await kept(store, [LARGE])
    await store.append("x", HEAD, large(5, file))


async def _remove(store: CassetteStore, number: int) -> bool:
    found = await store.load("x", writable=True)
    body = b'{"answer": %d}' % number
    if found is None:
        return False
    left = [item for item in exchanges(found.interactions) if item.response.body != body]
    return await store.save("x", replace(found, interactions=tuple(left)))


async def _noted(step: Awaitable[object], output: int, added: int | None, *removed: int) -> bool:
    try:
        done = await step
    except StoreError as exc:
        _write(output, f"{'full' if isinstance(exc, StoreFull) else 'failed'} {added}")
        return False
    if done is not False:
        lines = [*([] if added is None else [f"+ {added}"]), *[f"- {index}" for index in removed]]
        _write(output, *lines)
    return True


def _write(output: int, *lines: str) -> None:
    # By a call of its own, which is none of those that are made to fail.
    os.writev(output, [f"{line}\n".encode() for line in lines])


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], 1))
