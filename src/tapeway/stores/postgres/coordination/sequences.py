"""Indexes and places of a cassette, each given out once among all instances.

What is given out need not survive a crash: a recording with a higher one would have made it durable.
"""

import asyncio
import time

from tapeway.stores.postgres.pool import Pool, Session

_GIVE = """
INSERT INTO @numbering AS numbering (name, next, next_place)
VALUES ($1, $2::bigint + $3::bigint, $4::bigint)
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, $2) + $3,
  next_place = numbering.next_place + $4
RETURNING next - $3 AS number, next_place - $4 AS place
"""

_Waiting = dict[str, list[tuple[int, "asyncio.Future[int]"]]]


class Sequences:
    """Gives them out in the order in which this process asks."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._turn = asyncio.Lock()
        self._waiting: _Waiting = {}

    async def reserve(self, name: str) -> int:
        """An index nobody else gets."""
        index, _ = await self._give(name, indexes=1)
        return index

    async def block(self, name: str, count: int) -> tuple[int, int]:
        """The first of so many indexes and places in a row."""
        return await self._give(name, indexes=count, places=count)

    async def at_end(self, name: str, index: int, until: float) -> int:
        """The next place; `index` is taken from now on. All who wait are served by one statement.

        It is tried until that moment of the monotonic clock.
        """
        mine: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append((index, mine))
        async with self._turn:
            if not mine.done():
                # Not so long for each of those who waited meanwhile.
                patience = until - time.monotonic()
                await self._serve(name, self._waiting.pop(name), patience)
        return await mine

    async def _serve(
        self, name: str, waiting: "list[tuple[int, asyncio.Future[int]]]", patience: float
    ) -> None:
        least = max([index for index, _ in waiting]) + 1
        try:
            _, place = await self._give(name, least=least, places=len(waiting), patience=patience)
        except BaseException as exc:
            for _, future in waiting:
                future.set_exception(exc)
                future.exception()
            raise
        for at, (_, future) in enumerate(waiting):
            future.set_result(place + at)

    async def _give(
        self,
        name: str,
        *,
        least: int = 0,
        indexes: int = 0,
        places: int = 0,
        patience: float = 0.0,
    ) -> tuple[int, int]:
        async def give(session: Session) -> tuple[int, int]:
            given = await session.row(_GIVE, name, least, indexes, places)
            assert given is not None  # noqa: S101 - an upsert returns its row
            return given["number"], given["place"]

        return await self._pool.write(
            f"number the recordings of '{name}'", give, durable=False, patience=patience
        )
