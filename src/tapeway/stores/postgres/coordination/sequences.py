"""Indexes and places of a cassette, each given to one instance only.

They need not survive a crash of the server: a recording that uses one makes it durable.
"""

import asyncio
import time

from tapeway.stores.postgres.pool import Pool, Session

_RESERVE = """
INSERT INTO @numbering AS numbering (name, next, next_place)
VALUES ($1, $2::bigint + $3::bigint, $4::bigint)
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, $2) + $3,
  next_place = numbering.next_place + $4
RETURNING next - $3 AS number, next_place - $4 AS place
"""

_Waiting = dict[str, list[tuple[int, "asyncio.Future[int]"]]]


class Sequences:
    """Hands them out in the order of the calls."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._serving = asyncio.Lock()
        self._waiting: _Waiting = {}

    async def reserve(self, name: str) -> int:
        """An index that no other recording gets."""
        index, _ = await self._reserve(name, indexes=1)
        return index

    async def block(self, name: str, count: int) -> tuple[int, int]:
        """The first of `count` consecutive indexes, and of as many places."""
        return await self._reserve(name, indexes=count, places=count)

    async def place_at_end(self, name: str, index: int, until: float) -> int:
        """The next place; `index` counts as taken. One statement serves all that wait.

        It is tried until `until` on the monotonic clock.
        """
        mine: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append((index, mine))
        async with self._serving:
            if not mine.done():
                # One deadline for all: each waited already.
                patience = until - time.monotonic()
                await self._serve(name, self._waiting.pop(name), patience)
        return await mine

    async def _serve(
        self, name: str, waiting: "list[tuple[int, asyncio.Future[int]]]", patience: float
    ) -> None:
        least = max([index for index, _ in waiting]) + 1
        try:
            _, place = await self._reserve(
                name, least=least, places=len(waiting), patience=patience
            )
        except BaseException as exc:
            for _, future in waiting:
                future.set_exception(exc)
                future.exception()
            raise
        for at, (_, future) in enumerate(waiting):
            future.set_result(place + at)

    async def _reserve(
        self,
        name: str,
        *,
        least: int = 0,
        indexes: int = 0,
        places: int = 0,
        patience: float = 0.0,
    ) -> tuple[int, int]:
        async def reserve(session: Session) -> tuple[int, int]:
            row = await session.row(_RESERVE, name, least, indexes, places)
            assert row is not None  # noqa: S101 - an upsert returns its row
            return row["number"], row["place"]

        return await self._pool.write(
            f"number the recordings of '{name}'", reserve, durable=False, patience=patience
        )
