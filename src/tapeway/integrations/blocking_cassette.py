"""A cassette of any store for code that cannot await, served by an event loop in a thread."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self, TypeVar
from uuid import uuid4

from tapeway.body_files import in_memory
from tapeway.core.cassette import cursors
from tapeway.core.http.routing import check_cassette_name
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import StoreError, TapewayError
from tapeway.ports import CassetteStore
from tapeway.stores.opening import open_store
from tapeway.version import VERSION

T = TypeVar("T")
_BATCH = 256


class LoopThread:
    """Runs coroutines for any thread, also for threads with an event loop.

    The thread is a daemon, so the process can end at any time.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[None, None, T]) -> T:
        """The coroutine's result or exception. If the wait is interrupted, the coroutine goes on."""
        if os.getpid() != self._process:
            work.close()
            raise RuntimeError(
                "this process was forked: its parent has the thread of this cassette"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """Wait for the thread to end."""
        if os.getpid() == self._process:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def abandon(self, work: Coroutine[None, None, None]) -> None:
        """Run a last coroutine without waiting. Errors are dropped."""
        if os.getpid() != self._process or self._loop.is_closed():
            work.close()
            return
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class BlockingCassette:
    """A cassette in a private store, opened by the first use. Threads may share the cassette.

    Added items are as durable as the store's `append`. `close` writes the final form of a file. Without
    `close`, added items stay in the journal beside the file, and are read from there.
    """

    def __init__(self, store: str | CassetteStore, name: str, *, repeats: Repeats) -> None:
        self.name = check_cassette_name(name)
        self.store = open_store(store) if isinstance(store, str) else store
        self._repeats = repeats
        self._lock = threading.RLock()
        self._loop: LoopThread | None = None
        self._head: CassetteHead | None = None
        self._next = 0
        self._detach: Callable[[], object] = lambda: None

    @property
    def shown(self) -> str:
        """Store and name for messages, without a password."""
        return f"{self.store.url}#{self.name}"

    def load(self) -> StoredCassette | None:
        """All of it with bodies in memory, or None if there is none. Raises StoreError."""
        with self._lock:
            return self._open().run(self._load())

    def head(self) -> CassetteHead:
        """The head it has or will get. Claims the cassette for writing. Raises StoreError."""
        with self._lock:
            return self._head or self._open().run(self._claim())

    def add(self, items: Sequence[AnyInteraction]) -> list[int | TapewayError]:
        """Add items in order, durable on return. Returns for each the index, or why the item was not
        stored.

        Raises StoreError if the cassette cannot be recorded into at all.
        """
        with self._lock:
            return self._open().run(self._add([Recording(item) for item in items]))

    def put(self, item: AnyInteraction, supersedes: tuple[int, ...]) -> int:
        """Add a recording in place of earlier ones. Returns the index. Raises StoreError."""
        with self._lock:
            (done,) = self._open().run(self._add([Recording(item, supersedes)]))
        if isinstance(done, TapewayError):
            raise done
        return done

    def begin(self) -> None:
        """Save an empty cassette if there is none. Raises StoreError."""
        with self._lock:
            self.head()  # claims it, so that nobody else begins it meanwhile
            if self.load() is None:
                self.save(())

    def save(self, items: Sequence[AnyInteraction]) -> None:
        """Replace all interactions by these. Raises StoreError."""
        with self._lock:
            self._open().run(self._save(items))

    def close(self) -> None:
        """Close the cassette and its store; the next use opens them again. Raises StoreError."""
        with self._lock:
            loop, self._loop, self._head = self._loop, None, None
            if loop is None:
                return
            self._detach()
            try:
                loop.run(self.store.close())
            finally:
                loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> LoopThread:
        if self._loop is None:
            loop = LoopThread("tapeway-cassette")
            try:
                loop.run(self.store.open())
            except BaseException:
                loop.stop()
                raise
            self._loop = loop
            abandoned = weakref.finalize(self, _abandon, loop, self.store)
            # At exit the store's own threads have ended already.
            abandoned.atexit = False
            self._detach = abandoned.detach
        return self._loop

    async def _load(self) -> StoredCassette | None:
        stored = await self.store.load(self.name, writable=False)
        if stored is None:
            return None
        items = [await in_memory(interaction) for interaction in stored.interactions]
        return replace(stored, interactions=tuple(items))

    async def _claim(self) -> CassetteHead:
        if self._head is None:
            self._head = await self._shared_head() or await self._own_head() or self._fresh()
        return self._head

    async def _shared_head(self) -> CassetteHead | None:
        if (shared := self.store.shared) is None:
            return None
        outline = await shared.outline(self.name)
        return None if outline is None else outline.head

    async def _own_head(self) -> CassetteHead | None:
        if self.store.shared is not None:
            return None
        stored = await self.store.load(self.name, writable=True)
        if stored is None:
            self._next = 0
            return None
        self._next = max([interaction.index for interaction in stored.interactions], default=-1) + 1
        return stored.head

    async def _add(self, recordings: Sequence[Recording]) -> list[int | TapewayError]:
        head = await self._claim()
        done: list[int | TapewayError] = []
        for start in range(0, len(recordings), _BATCH):
            # Concurrent appends share one sync.
            numbered = [
                replace(
                    recording, interaction=replace(recording.interaction, index=await self._index())
                )
                for recording in recordings[start : start + _BATCH]
            ]
            done += await asyncio.gather(
                *[self._append(head, interaction) for interaction in numbered]
            )
        return done

    async def _append(self, head: CassetteHead, recording: Recording) -> int | TapewayError:
        try:
            await self.store.append(self.name, head, recording)
        except TapewayError as exc:
            return exc
        return recording.interaction.index

    async def _index(self) -> int:
        if (shared := self.store.shared) is not None:
            return await shared.reserve(self.name)
        index, self._next = self._next, self._next + 1
        return index

    async def _save(self, items: Sequence[AnyInteraction]) -> None:
        head = await self._claim()
        numbered = [replace(interaction, index=index) for index, interaction in enumerate(items)]
        await self.store.save(self.name, StoredCassette(head, tuple(numbered)))
        self._next = len(numbered)

    def _fresh(self) -> CassetteHead:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = cursors.meta_with_repeats({"tapeway_version": VERSION}, self._repeats)
        return CassetteHead(now, str(uuid4()), meta)


def _abandon(loop: LoopThread, store: CassetteStore) -> None:
    loop.abandon(_close_store(store))


async def _close_store(store: CassetteStore) -> None:
    try:
        await store.close()
    except StoreError:
        return  # What was acknowledged is in the journal.
