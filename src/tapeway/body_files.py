"""Bodies too large for memory: written to temporary files, and read back in pieces.

A temporary file has no name, so nothing is left behind however the process ends. The file exists as
long as an object refers to it. Async functions here wait for the disk in threads.
"""

import asyncio
import errno
import hashlib
import os
import tempfile
import time
import weakref
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Response
from tapeway.errors import CassetteCorrupt, StoreError, StoreFull

T = TypeVar("T")

KIB = 1024
MIB = 1024 * KIB
PIECE = 256 * KIB
"""How much of a body is read at once."""

_BUFFER = 1024 * KIB
MOST_VERIFIED = 10_000
_SETTLED_NS = 2_000_000_000
"""A file written less than this before a read may be written again with equal times."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TemporaryFile:
    """A file without a name, closed when the last reference is gone."""

    def __init__(self, folder: str | None) -> None:
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                self.fd = os.dup(file.fileno())
        except OSError as exc:
            raise _failed(exc, folder) from exc
        self.folder = folder
        weakref.finalize(self, os.close, self.fd)

    def __deepcopy__(self, _: object) -> "TemporaryFile":
        return self

    def open(self) -> int:
        """A new descriptor of the file, for the caller to close. Raises StoreError."""
        return os.dup(self.fd)

    def write(self, data: bytes) -> None:
        """Add bytes at the end. Raises StoreFull, StoreError."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        except OSError as exc:
            raise _failed(exc, self.folder) from exc


class Spool:
    """Collects a body in a temporary file. Used by one task."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._file: TemporaryFile | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_size = 0
        self.size = 0

    async def add(self, data: bytes) -> None:
        """Add bytes at the end. Raises StoreFull, StoreError."""
        self._unwritten.append(data)
        self._unwritten_size += len(data)
        self.size += len(data)
        if self._unwritten_size >= _BUFFER:
            await self._flush()

    async def finish(self) -> BodyFile:
        """The body collected; its digest is not known yet. Raises StoreFull, StoreError."""
        await self._flush()
        return BodyFile("", self.size, "", handle=self._file)

    async def _flush(self) -> None:
        data = b"".join(self._unwritten)
        self._unwritten.clear()
        self._unwritten_size = 0
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file = TemporaryFile(self._folder)
        self._file.write(data)


class BodyBuffer:
    """Collects a body in memory, or in a temporary file above `most` bytes."""

    def __init__(self, most: int, folder: str | None) -> None:
        self._most = most
        self._folder = folder
        self._pieces: list[bytes] = []
        self._spool: Spool | None = None
        self.size = 0

    async def add(self, data: bytes) -> None:
        """Add bytes at the end. Raises StoreFull, StoreError."""
        self.size += len(data)
        if self._spool is not None:
            await self._spool.add(data)
            return
        self._pieces.append(data)
        if self.size > self._most:
            self._spool = Spool(self._folder)
            for piece in self._pieces:
                await self._spool.add(piece)
            self._pieces.clear()

    async def finish(self) -> bytes | BodyFile:
        """The body. Raises StoreFull, StoreError."""
        return b"".join(self._pieces) if self._spool is None else await self._spool.finish()


def check_body_file(file: BodyFile) -> None:
    """Raise CassetteCorrupt if a body's file is missing or has another size."""
    if isinstance(file.handle, TemporaryFile):
        return
    try:
        size = os.stat(file.path, follow_symlinks=False).st_size
    except OSError as exc:
        raise CassetteCorrupt(f"{file.path} cannot be read ({exc.strerror}): restore it") from exc
    if size != file.size:
        raise CassetteCorrupt(f"{file.path} was changed since it was recorded: restore it")


def body_pieces(file: BodyFile, piece_size: Callable[[], int] = lambda: PIECE) -> Generator[bytes]:
    """The body from its beginning; reads the disk, so iterate in a thread.

    The last piece comes only if size and digest are right, so nobody takes a changed file for
    complete. `piece_size` is called before each read. Raises CassetteCorrupt.
    """
    fd = _open(file)
    try:
        yield from _checked(fd, file, piece_size)
    except OSError as exc:
        raise StoreError(f"{_shown(file)}: could not read it ({exc.strerror})") from exc
    finally:
        os.close(fd)


def unchecked_pieces(file: BodyFile) -> Generator[bytes]:
    """All of a file, also if it is not what was recorded. Raises CassetteCorrupt, StoreError."""
    fd, at = _open(file), 0
    try:
        while piece := os.pread(fd, PIECE, at):
            at += len(piece)
            yield piece
    except OSError as exc:
        raise StoreError(f"{_shown(file)}: could not read it ({exc.strerror})") from exc
    finally:
        os.close(fd)


async def stream_body(file: BodyFile) -> AsyncGenerator[bytes]:
    """The body from its beginning; waits for the disk in threads. Raises CassetteCorrupt."""
    async with aclosing(in_threads(body_pieces(file))) as source:
        async for piece in source:
            yield piece


async def in_threads(source: Generator[T]) -> AsyncGenerator[T]:
    """The items of a generator. Each step takes a thread, and others get threads between two steps.

    A caller that is cancelled during a step leaves at once; `source` is closed after that step.
    """
    loop, step = asyncio.get_running_loop(), None
    try:
        while True:
            step = loop.run_in_executor(None, next, source, None)
            if (piece := await asyncio.shield(step)) is None:
                return
            yield piece
    finally:
        if step is None or step.done():
            source.close()
        else:
            step.add_done_callback(partial(_close_after, source))


def _close_after(source: Generator[T], step: "asyncio.Future[T | None]") -> None:
    if not step.cancelled():
        # Nobody waits for the error any more.
        step.exception()
    source.close()


async def read_body(file: BodyFile) -> bytes:
    """The whole body, which must fit into memory."""
    async with aclosing(stream_body(file)) as source:
        return b"".join([piece async for piece in source])


async def in_memory(item: AnyInteraction) -> AnyInteraction:
    """The interaction with all bodies read into memory, which must have room for the bodies."""
    if not isinstance(item, Interaction):
        return item
    request = item.request
    if request.file is not None:
        request = replace(request, file=None, body=await read_body(request.file))
    return replace(item, request=request, response=await with_body_in_memory(item.response))


async def with_body_in_memory(response: Response) -> Response:
    """The response with the body read into memory, which must have room for the body."""
    if response.file is None:
        return response
    return replace(response, body=await read_body(response.file), file=None)


def _open(file: BodyFile) -> int:
    if isinstance(file.handle, TemporaryFile):
        return file.handle.open()
    try:
        return os.open(file.path, _READ)
    except OSError as exc:
        raise CassetteCorrupt(f"{file.path} cannot be read ({exc.strerror}): restore it") from exc


class VerifiedFiles:
    """Digests of files, each from a read in which the file had the recorded digest.

    Computing a digest takes longer than reading and sending the file.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is the clock of the file system's times."""
        self._now_ns = now_ns
        self._digests: OrderedDict[tuple[int, ...], str] = OrderedDict()

    def has(self, status: os.stat_result, digest: str) -> bool:
        """Whether a read found this digest, and the file is unchanged since that read."""
        return self._digests.get(_identity(status)) == digest

    def add(self, before: os.stat_result, after: os.stat_result, digest: str) -> None:
        """Note the digest of a file, given its state before and after the read; a fresh change is not noted."""
        settled = self._now_ns() - max(after.st_mtime_ns, after.st_ctime_ns) > _SETTLED_NS
        if settled and _identity(before) == _identity(after):
            self._digests[_identity(after)] = digest
            while len(self._digests) > MOST_VERIFIED:
                self._digests.popitem(last=False)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    # A program can set the time of modification, but not the time of the status change.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


_verified = VerifiedFiles(time.time_ns)


def _checked(fd: int, file: BodyFile, piece_size: Callable[[], int]) -> Generator[bytes]:
    before = os.fstat(fd)
    hashes = bool(file.digest) and not _verified.has(before, file.digest)
    digest, at = hashlib.sha256(), 0
    while at < file.size:
        piece = os.pread(fd, min(piece_size(), file.size - at), at)
        at += len(piece)
        if hashes:
            digest.update(piece)
        is_wrong = not piece or (
            at == file.size
            and not _is_as_recorded(fd, file, before, digest.hexdigest() if hashes else None)
        )
        if is_wrong:
            raise CassetteCorrupt(f"{_shown(file)} was changed since it was recorded: restore it")
        yield piece


def _is_as_recorded(fd: int, file: BodyFile, before: os.stat_result, digest: str | None) -> bool:
    """Whether a file that was read whole is the recorded file.

    `digest` is None if nothing was hashed, as for a file verified by an earlier read: such a file
    must still be in the state `before`.
    """
    after = os.fstat(fd)
    if after.st_size != file.size:
        return False
    if not file.digest:
        return True
    if digest is None:
        return _identity(after) == _identity(before)
    if digest == file.digest:
        _verified.add(before, after, digest)
    return digest == file.digest


def _shown(file: BodyFile) -> str:
    return file.path or "a temporary file"


def _failed(exc: OSError, folder: str | None) -> StoreError:
    place = f"{folder or tempfile.gettempdir()}: could not write a large body ({exc.strerror})"
    if exc.errno in _FULL:
        return StoreFull(f"{place}; free some room, nothing was stored")
    return StoreError(f"{place}; see whether it can be written", status=503)
