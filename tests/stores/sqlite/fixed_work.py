"""A fixed piece of work on a SQLite store, to be broken off at any call of it: `fixed_work FILE`.

It says what was acknowledged, a line each: `+ 3` recorded, `- 0` replaced or removed, `full 4` for
what found no room and `failed 5` for what failed otherwise; it goes on after a failure.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable
from pathlib import Path

from tapeway.errors import StoreError, StoreFull
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.large_bodies import large
from tests.stores.recordings import HEAD, recording

LARGE = b"0123456789" * 900


async def work(file: Path, say: int) -> None:
    """Record two, replace one, record three at once, then one with a large body; remove one."""
    store = SqliteStore(file)
    try:
        await store.open()
        if await _told(store.append("x", HEAD, recording(0)), say, 0):
            await _told(store.append("x", HEAD, recording(1, 0)), say, 1, 0)
        await asyncio.gather(
            *[_told(store.append("x", HEAD, recording(n)), say, n) for n in (2, 3, 4)]
        )
        await _told(_keep(store), say, 5)
        await _told(store.edit("x", 2, None), say, None, 2)
        await _told(store.append("y", HEAD, recording(6)), say, 6)
        await store.release("x")
        await _told(store.append("y", HEAD, recording(7)), say, 7)
        await store.close()
    except StoreError as exc:
        _say(say, f"! {exc.message}")


async def _keep(store: SqliteStore) -> None:
    file = await store.keep("x", [LARGE])
    await store.append("x", HEAD, large(5, file))


async def _told(work: Awaitable[object], say: int, came: int | None, *went: int) -> bool:
    try:
        done = await work
    except StoreError as exc:
        _say(say, f"{'full' if isinstance(exc, StoreFull) else 'failed'} {came}")
        return False
    if done is not False:
        _say(say, "\n".join([*([] if came is None else [f"+ {came}"]), *[f"- {n}" for n in went]]))
    return True


def _say(to: int, text: str) -> None:
    os.write(to, text.encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), 1))
