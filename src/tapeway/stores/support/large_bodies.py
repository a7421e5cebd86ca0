"""Large bodies on the way into a store without files, and copies of stored bodies."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from tapeway.body_files import PIECE, TemporaryFile
from tapeway.core.model.interaction import AnyInteraction, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt

PIECES_AT_ONCE = 8
"""2 MiB: a statement has to end within some seconds, also over a slow network."""

CACHED_BYTES = 256 * 1024 * 1024
CACHED_FILES = 64
"""Each is a descriptor."""


def equal_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes cut anew into pieces of PIECE bytes; only the last piece may be shorter."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= PIECE:
            yield bytes(waiting[:PIECE])
            del waiting[:PIECE]
    if waiting:
        yield bytes(waiting)


def write_temporary(pieces: Iterable[bytes]) -> tuple[BodyFile, TemporaryFile]:
    """A body in a temporary file, and that file. Raises StoreError, and what `pieces` raises."""
    file, size, digest = TemporaryFile(None), 0, hashlib.sha256()
    for piece in pieces:
        file.write(piece)
        digest.update(piece)
        size += len(piece)
    return BodyFile("", size, digest.hexdigest(), handle=file), file


def damaged(where: str, digest: str) -> CassetteCorrupt:
    """The error for a body unlike the recorded body."""
    return CassetteCorrupt(
        f"{where}: the large body sha256-{digest} is not what was recorded: restore it, or record it "
        "anew"
    )


class TemporaryFileCache:
    """Temporary files of bodies by digest, the last used ones; for any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._files: OrderedDict[str, tuple[TemporaryFile, int]] = OrderedDict()

    def get(self, digest: str) -> TemporaryFile | None:
        with self._guard:
            if (file := self._files.get(digest)) is None:
                return None
            self._files.move_to_end(digest)
            return file[0]

    def add(self, digest: str, file: TemporaryFile, size: int) -> None:
        """Keep a file until later files take the room."""
        with self._guard:
            self._files[digest] = file, size
            while self._is_full():
                self._files.popitem(last=False)

    def clear(self) -> None:
        with self._guard:
            self._files.clear()

    def _is_full(self) -> bool:
        if len(self._files) > CACHED_FILES:
            return True
        return sum(size for _, size in self._files.values()) > CACHED_BYTES


class FetchedBody(TemporaryFile):
    """A body, fetched from its store on opening."""

    def __init__(self, fetch: Callable[[], TemporaryFile]) -> None:
        self._fetch = fetch

    def open(self) -> int:
        return self._fetch().open()


class BodyUpload:
    """A body on its way into the store."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._source = equal_pieces(pieces)
        self._digest = hashlib.sha256()
        self.id: int | None = None
        self.size = self.count = 0

    def take(self) -> list[bytes]:
        """The next block; empty after the last one. Raises what the source raises."""
        block = list(islice(self._source, PIECES_AT_ONCE))
        for piece in block:
            self._digest.update(piece)
            self.size += len(piece)
        return block

    @property
    def digest(self) -> bytes:
        return self._digest.digest()


class BodyCache:
    """Bodies as temporary files; those read lately stay open."""

    def __init__(
        self,
        place: str,
        pieces_of: Callable[[str], Iterator[bytes]],
        scratch: Callable[[], str | None],
    ) -> None:
        """`pieces_of` reads a body by its digest, in a thread that may wait."""
        self._place = place
        self._pieces_of = pieces_of
        self._scratch = scratch
        self._cached = TemporaryFileCache()

    def with_bodies(self, item: AnyInteraction) -> AnyInteraction:
        """The interaction with large bodies that are read when they are opened."""
        return replace_large_bodies(item, self.with_handle)

    def with_handle(self, file: BodyFile) -> BodyFile:
        """The body, to be read when it is opened."""
        return replace(file, handle=FetchedBody(partial(self._fetch, file.digest)))

    def close(self) -> None:
        """Drop all files."""
        self._cached.clear()

    def _fetch(self, digest: str) -> TemporaryFile:
        if (cached := self._cached.get(digest)) is not None:
            return cached
        file, size = self._read(digest)
        self._cached.add(digest, file, size)
        return file

    def _read(self, digest: str) -> tuple[TemporaryFile, int]:
        file, size, digest_of_data = TemporaryFile(self._scratch()), 0, hashlib.sha256()
        for data in self._pieces_of(digest):
            file.write(data)
            digest_of_data.update(data)
            size += len(data)
        if not size:
            raise CassetteCorrupt(
                f"{self._place}: the large body {digest} is gone, its recording was removed or "
                "replaced meanwhile"
            )
        if digest_of_data.hexdigest() != digest:
            raise damaged(self._place, digest)
        return file, size
