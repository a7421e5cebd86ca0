"""Large bodies on the way into a store without files, and copies of stored bodies."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from tapeway.body_files import PIECE, TemporaryFile
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt

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
