"""Reads large bodies for threads that wait, in a separate thread with a separate connection.

So any thread that iterates over a body may wait for the bytes, and the event loop holds no bytes.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from tapeway.errors import closed
from tapeway.stores.postgres.operations import bodies
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.postgres.pool import Pool, Session


class BodyReader:
    """Connects at the first body."""

    def __init__(self, pool: Pool) -> None:
        """The connection is made like those of `pool`."""
        self._like = pool
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def pieces_of(self, digest: str) -> Iterator[bytes]:
        """A body from its beginning; nothing where it is gone. Raises StoreAway, StoreError."""
        number = 0
        while some := self._some(digest, number):
            yield from [data for _, data in some]
            number = some[-1][0] + 1

    def close(self) -> None:
        """Let no more be read; waits for what is being read."""
        with self._guard:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._pool.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _some(self, digest: str, number: int) -> Sequence[Row]:
        with self._guard:
            if self._closed:
                raise closed(self._like.address.shown)
            loop = self._loop = self._loop or self._started()
            read = partial(_read, digest, number)
            future = asyncio.run_coroutine_threadsafe(
                self._pool.read("read a large body", read), loop
            )
            return future.result()

    def _started(self) -> asyncio.AbstractEventLoop:
        self._pool = Pool(replace(self._like.address, connections=1))
        self._pool.pooled = self._like.pooled
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run, args=(loop,), name="tapeway-bodies", daemon=True
        )
        self._thread.start()
        return loop


async def _read(digest: str, number: int, session: Session) -> Sequence[Row]:
    return await bodies.pieces_from(digest, number, session)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
