"""Cassettes as files in a folder, one readable document each, safe against crashes."""

import asyncio
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from tapeway.core.model.cassette import CassetteHead, CassetteStat, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.descriptors import max_open_cassettes
from tapeway.errors import ConfigError, StoreError, closed, copy_of, poisoned
from tapeway.formats.cassette_file import JSON, Serializer
from tapeway.ports import StoreFacts
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.handles import HandleBudget, ProcessLock
from tapeway.stores.file.journal import is_only_begun, payload_of
from tapeway.stores.file.paths import FolderNames, Paths, find_names
from tapeway.stores.support.durable_files import check_writes, read_error
from tapeway.stores.support.resident_recordings import ResidentRecordings
from tapeway.stores.support.serial_executor import Done, SerialExecutor, result_of, tell
from tapeway.stores.support.threads import StoreThreads
from tapeway.stores.whole import WholeCassettes

log = logging.getLogger(__name__)

T = TypeVar("T")

# Threads wait for the disk, not for a processor: this many cassettes can sync at once.
THREADS = 16

_FOLDED_PER_S = 4.0 * 1024 * 1024
"""Bytes of file and journal that are folded in a second, at a guess."""

_FOLDED_CONTAINER_S = 20e-6
"""How long each object and each list of file and journal takes besides, at a guess."""

_SMALL = 64 * 1024

WRITTEN_ON_THE_LOOP = 32 * 1024
"""The text of a recording with larger bodies is made in the thread, as that takes milliseconds."""


class FileStore(WholeCassettes):
    """A folder of cassettes. Each cassette has an executor: a slow cassette holds up no other.

    An existing file keeps its format, a new file gets the given format.
    """

    def __init__(self, root: Path, serializer: Serializer = JSON) -> None:
        self.url = f"file:{root}" if serializer is JSON else f"file:{root}?format={serializer.name}"
        self.facts = StoreFacts(durability="disk", folder=root)
        self._root = root
        self._serializer = serializer
        self._folder_names = FolderNames()
        self._pool = _threads()
        self._open: dict[str, _OpenCassette] = {}
        self._handles = HandleBudget()
        self._resident = ResidentRecordings()
        self._process_lock = ProcessLock(root)
        self._closed = False

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    @property
    def trouble(self) -> StoreError | None:
        """There is a cassette for which nothing is acknowledged until it is ejected."""
        suspect = any(handle.cassette.poisoned for handle in self._open.values())
        return poisoned(self.url) if suspect else None

    async def check_writes(self, name: str | None = None) -> None:
        if name is None and (trouble := self.trouble) is not None:
            raise trouble
        if name is not None and (opened := self._open.get(name)) is not None:
            opened.cassette.refuse_poisoned()
        await asyncio.to_thread(check_writes, self._root)

    async def open(self) -> None:
        if self._closed:
            self._pool, self._open, self._closed = _threads(), {}, False
        try:
            other = self._root.exists() and not self._root.is_dir()
        except OSError as exc:
            raise read_error(exc, str(self._root), "look at the folder") from exc
        if other:
            raise ConfigError(f"{self._root} is not a folder: give --store another one")

    async def close(self, within_s: float = math.inf) -> None:
        """Fold every journal that there is time for. Raises the first StoreError, at the end."""
        opened, self._open = self._open, {}
        last = LastFolds(within_s)
        try:
            folds = [
                handle.run(partial(last.release, handle.cassette)) for handle in opened.values()
            ]
            ended = await asyncio.gather(*folds, return_exceptions=True)
        finally:
            self._closed = True
            self._pool.shutdown()
            self._process_lock.close()
        if last.left:
            log.info(
                "%d cassettes keep their journals, as there was no time to merge them: nothing is "
                "missing, and the next start continues from them",
                last.left,
            )
        _raise_first(dict(zip(opened, ended, strict=True)))

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        opened = self._opened(name)
        return await opened.run(partial(opened.cassette.load, writable=writable), opens=writable)

    def append(
        self, name: str, head: CassetteHead, recording: Recording
    ) -> Coroutine[None, None, None]:
        return self._opened(name).append(head, recording)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        opened = self._opened(name)
        await opened.run(opened.cassette.claim)
        # Beside the executor: work of seconds does not hold up other recordings.
        return await result_of(self._pool.submit(partial(opened.cassette.keep, pieces)))

    async def put(self, name: str, cassette: StoredCassette) -> None:
        opened = self._opened(name)
        await opened.run(partial(opened.cassette.save, cassette))

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        # Without its recordings in memory.
        opened = self._opened(name)
        await opened.run(partial(opened.cassette.replace_head, head))

    async def release(self, name: str) -> None:
        opened = self._opened(name)
        try:
            await opened.run(opened.cassette.release)
        finally:
            # A cassette that came back meanwhile is in use again; a suspect cassette has to be
            # remembered.
            if opened.idle and not opened.cassette.poisoned:
                self._open.pop(name, None)

    async def delete(self, name: str) -> bool:
        opened = self._opened(name)
        try:
            return await opened.run(opened.cassette.remove)
        finally:
            if opened.idle:
                self._open.pop(name, None)

    async def names(self) -> list[str]:
        return await self._in_thread(partial(find_names, self._root), "list the cassettes")

    async def stat(self, name: str) -> CassetteStat | None:
        return await self._in_thread(
            partial(_stat, Paths(self._root, name)), "look at the cassette"
        )

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        def look() -> list[CassetteStat | None]:
            return [_stat(Paths(self._root, name)) for name in names]

        return await self._in_thread(look, "look at the cassettes")

    def _opened(self, name: str) -> "_OpenCassette":
        self._refuse_when_closed()
        if (opened := self._open.get(name)) is None:
            opened = self._open[name] = _OpenCassette(
                FileCassette(
                    self._root, name, self._serializer, self._folder_names, self._resident
                ),
                SerialExecutor(self._pool),
                self._handles,
                self._process_lock,
            )
        return opened

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise closed(self.url)

    async def _in_thread(self, work: Callable[[], T], action: str) -> T:
        self._refuse_when_closed()
        try:
            return await result_of(self._pool.submit(work))
        except OSError as exc:
            raise read_error(exc, str(self._root), action) from exc


class LastFolds:
    """Folds at a close, as long as there is time. For any thread.

    A fold is never broken off. So no fold begins that would take too long.
    """

    def __init__(self, within_s: float) -> None:
        self.left = 0
        self._until = time.monotonic() + within_s
        self._guard, self._turn = threading.Lock(), threading.Lock()
        self._slowness = 1.0
        """How much longer a fold took than guessed."""

    def release(self, cassette: FileCassette) -> None:
        """Release a cassette, or let go of the cassette with the journal."""
        size = cassette.unfolded_bytes
        if size <= _SMALL:
            # The task waits for the disk; others run meanwhile.
            self._release(cassette, size)
            return
        with self._turn:
            began = time.monotonic()
            if guessed := self._release(cassette, size):
                took = time.monotonic() - began
                self._slowness = max(self._slowness, took / guessed)

    def _release(self, cassette: FileCassette, size: int) -> float:
        """How long its fold was to take, at a guess; 0 where the cassette keeps its journal."""
        seconds = size / _FOLDED_PER_S
        if size and self._is_time_for(seconds):
            # Only now: to read the files takes time too.
            seconds += cassette.unfolded_containers * _FOLDED_CONTAINER_S
        if self._is_time_for(seconds):
            cassette.release()
            return seconds
        cassette.let_go()
        with self._guard:
            self.left += 1
        return 0.0

    def _is_time_for(self, seconds: float) -> bool:
        return time.monotonic() + seconds * self._slowness <= self._until


def _raise_first(ended: Mapping[str, BaseException | None]) -> None:
    failed = [(name, exc) for name, exc in ended.items() if exc is not None]
    for name, exc in failed:
        if isinstance(exc, StoreError):
            log.error("cassette '%s' at stop: %s", name, exc.message)
    for _, exc in failed:
        raise exc


def _threads() -> StoreThreads:
    # Each may have the handles of a cassette open.
    return StoreThreads(min(THREADS, max_open_cassettes()), "tapeway-store")


class _OpenCassette:
    """A cassette in use and the recordings that wait to be synced together."""

    def __init__(
        self,
        cassette: FileCassette,
        executor: SerialExecutor,
        handles: HandleBudget,
        process_lock: ProcessLock,
    ) -> None:
        self.cassette = cassette
        self.executor = executor
        self._handles = handles
        self._process_lock = process_lock
        self._busy = threading.Lock()
        self._waiting: deque[_Unwritten] = deque()
        self._handed_over = True
        """Whether a thread will write, or writes, all that waits."""

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or waits."""
        return self.executor.idle and not self._waiting

    async def append(self, head: CassetteHead, recording: Recording) -> None:
        loop = asyncio.get_running_loop()
        # Two threads that both compute would take the interpreter from each other all the time.
        text = payload_of(recording) if _is_small(recording.interaction) else None
        waiting = _Unwritten(head, recording, text, loop.create_future())
        self._waiting.append(waiting)
        if self._handed_over:
            self._handed_over = False
            # All that is recorded in this turn of the event loop wakes the thread once.
            loop.call_soon(self._hand_over)
        if (failure := await waiting.done) is not None:
            try:
                raise failure
            finally:
                # Each would keep the other, and the recording.
                del failure

    async def run(self, work: Callable[[], T], *, opens: bool = True) -> T:
        """The result of work on the cassette, run after all earlier work.

        With `opens` the work may open the handles.
        """
        self._hand_over()
        return await self.executor.run(partial(self._while_busy, work, opens=opens))

    def park(self) -> bool:
        """Close its handles; False while it is in use. For any thread."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            return self.cassette.park(self._process_lock.name)
        finally:
            self._busy.release()

    def _while_busy(self, work: Callable[[], T], *, opens: bool = True) -> T:
        with self._busy:
            if opens:
                if not self.cassette.has_handles:
                    self._handles.make_room()
                self._handles.used(self)
            try:
                return work()
            finally:
                if not self.cassette.has_handles:
                    self._handles.forget(self)

    def _hand_over(self) -> None:
        if self._handed_over:
            return
        self._handed_over = True
        try:
            self.executor.start(self._write)
        except RuntimeError as exc:
            self._refuse_waiting(exc)

    def _write(self) -> None:
        try:
            self._while_busy(self._write_waiting)
        except BaseException as exc:
            self._refuse_waiting(exc)

    def _refuse_waiting(self, cause: BaseException) -> None:
        ended: list[tuple[Done, BaseException | None]] = []
        while self._waiting:
            ended.append((self._waiting.popleft().done, copy_of(cause)))
        tell(ended)

    def _write_waiting(self) -> None:
        payloads: list[bytes] = []
        ended: list[tuple[Done, BaseException | None]] = []
        accepted: list[Done] = []
        checked: list[Interaction] = []
        head: CassetteHead | None = None
        while self._waiting:
            head, recording, text, done = self._waiting.popleft()
            try:
                if text is None:
                    if isinstance(recording.interaction, Interaction):
                        self.cassette.check(recording.interaction)
                        checked.append(recording.interaction)
                    text = payload_of(recording)
                payloads.append(text)
            except BaseException as exc:
                ended.append((done, exc))
            else:
                accepted.append(done)
        if head is not None and accepted:
            try:
                self.cassette.append(head, payloads)
            except BaseException as exc:
                ended += [(done, copy_of(exc)) for done in accepted]
            else:
                self.cassette.recorded(checked)
                ended += [(done, None) for done in accepted]
        tell(ended)


class _Unwritten(NamedTuple):
    """A recording that waits to be written, with its text if quickly made."""

    head: CassetteHead
    recording: Recording
    text: bytes | None
    done: Done


def _is_small(item: AnyInteraction) -> bool:
    if not isinstance(item, Interaction) or item.request.file or item.response.file:
        return False
    return len(item.request.body) + item.response.size <= WRITTEN_ON_THE_LOOP


def _stat(paths: Paths) -> CassetteStat | None:
    folder = paths.open_folder()
    if folder is None:
        return None
    statuses: dict[str, os.stat_result] = {}
    try:
        for file in (*paths.candidates, paths.journal):
            with suppress(FileNotFoundError):
                statuses[file] = os.stat(file, dir_fd=folder, follow_symlinks=False)
        if list(statuses) == [paths.journal] and is_only_begun(folder, paths.journal):
            return None
    finally:
        os.close(folder)
    if not statuses:
        return None
    modified = datetime.fromtimestamp(max(status.st_mtime for status in statuses.values()), UTC)
    size = sum(status.st_size for status in statuses.values())
    version = " ".join([f"{file}:{_version_of(status)}" for file, status in statuses.items()])
    return CassetteStat(size, modified.isoformat(timespec="microseconds"), version)


def _version_of(status: os.stat_result) -> str:
    # The time of the last change of the inode: a copy that keeps the older times is noticed too.
    return f"{status.st_ino}.{status.st_ctime_ns}.{status.st_size}"
