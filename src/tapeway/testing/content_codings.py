"""Content codings (RFC 9110 section 8.4.1), flushed behind each write of an answer."""

import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import brotli  # type: ignore[import-untyped]

from tapeway.testing.answer import StandInAnswer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP, ZLIB = 31, 15


class _Coder(Protocol):
    def write(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class _Deflating:
    def __init__(self, window: int) -> None:
        self._coder = zlib.compressobj(wbits=window)

    def write(self, data: bytes) -> bytes:
        return self._coder.compress(data) + self._coder.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._coder.flush()


class _BrotliEncoder:
    def __init__(self) -> None:
        self._coder = brotli.Compressor()

    def write(self, data: bytes) -> bytes:
        return bytes(self._coder.process(data) + self._coder.flush())

    def finish(self) -> bytes:
        return bytes(self._coder.finish())


class _Zstandard:
    def __init__(self) -> None:
        self._coder = zstd.ZstdCompressor()

    def write(self, data: bytes) -> bytes:
        return self._coder.compress(data, self._coder.FLUSH_BLOCK)

    def finish(self) -> bytes:
        return self._coder.flush()


_CODERS: dict[str, Callable[[], _Coder]] = {
    "gzip": lambda: _Deflating(GZIP),
    "deflate": lambda: _Deflating(ZLIB),
    "br": _BrotliEncoder,
    "zstd": _Zstandard,
}
CODINGS = tuple(_CODERS)


def encode_answer(answer: StandInAnswer, offered: Sequence[str], accepted: str) -> StandInAnswer:
    """The answer in the first offered coding that an Accept-Encoding value names, or unchanged.

    The number of writes stays, and each write can be decoded on arrival.
    """
    names = {part.partition(";")[0].strip() for part in accepted.split(",")}
    coding = next((name for name in offered if name in names), None)
    if coding is None or not answer.writes:
        return answer
    coder = _CODERS[coding]()
    writes = [coder.write(write) for write in answer.writes]
    writes[-1] += coder.finish()
    headers = (*answer.headers, ("Content-Encoding", coding), ("Vary", "Accept-Encoding"))
    return replace(answer, headers=headers, writes=tuple(writes))
