"""Indexes of a cassette, each given to one instance only.

They need not survive a crash of the server: a recording that uses one makes it durable. A new
recording has its index as its place too, so that the order is that in which requests came.
"""

import asyncio
import time

from tapeway.stores.postgres.pool import Pool, Session

_RESERVE = """
INSERT INTO @numbering AS numbering (name, next) VALUES ($1, $2::bigint + $3::bigint)
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, $2) + $3
RETURNING next - $3 AS number
"""

_Waiting = dict[str, list[tuple[int, "asyncio.Future[None]"]]]


class Sequences:
    """Hands them out in the order of the calls."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._serving = asyncio.Lock()
        self._waiting: _Waiting = {}

    async def reserve(self, name: str) -> int:
        """An index that no other recording gets."""
        return await self._reserve(name, indexes=1)

    async def block(self, name: str, count: int) -> int:
        """The first of `count` consecutive indexes."""
        return await self._reserve(name, indexes=count)

    async def take(self, name: str, index: int, until: float) -> None:
        """Have an index count as taken. One statement serves all that wait.

        It is tried until `until` on the monotonic clock.
        """
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append((index, mine))
        async with self._serving:
            if not mine.done():
                # One deadline for all: each waited already.
                patience = until - time.monotonic()
                await self._serve(name, self._waiting.pop(name), patience)
        await mine

    async def _serve(
        self, name: str, waiting: "list[tuple[int, asyncio.Future[None]]]", patience: float
    ) -> None:
        least = max([index for index, _ in waiting]) + 1
        try:
            await self._reserve(name, least=least, patience=patience)
        except BaseException as exc:
            for _, future in waiting:
                future.set_exception(exc)
                future.exception()
            raise
        for _, future in waiting:
            future.set_result(None)

    async def _reserve(
        self, name: str, *, least: int = 0, indexes: int = 0, patience: float = 0.0
    ) -> int:
        async def reserve(session: Session) -> int:
            row = await session.row(_RESERVE, name, least, indexes)
            assert row is not None  # noqa: S101 - an upsert returns its row
            number: int = row["number"]
            return number

        return await self._pool.write(
            f"number the recordings of '{name}'", reserve, durable=False, patience=patience
        )
