"""Noticing that somebody has changed a cassette: another process, git, or a person with an editor."""

import asyncio
from collections.abc import AsyncIterator

from tapeway.core.model import CassetteStat
from tapeway.ports import CassetteStore

EVERY_S = 1.0


async def watch(
    store: CassetteStore, name: str, since: CassetteStat | None, every_s: float = EVERY_S
) -> AsyncIterator[CassetteStat | None]:
    """What a cassette has become, each time anybody has changed it; None when it was removed.

    `since` is what was last known of it: what changed before the first look is told too. Changes
    that lie closer together than `every_s` are told as one. Raises StoreError.
    """
    while True:
        now = await store.stat(name)
        if changed(since, now):
            since = now
            yield now
        else:
            await asyncio.sleep(every_s)


def changed(before: CassetteStat | None, now: CassetteStat | None) -> bool:
    """Whether a cassette is not what it was."""
    if before is None or now is None:
        return before is not now
    return before.mark != now.mark
