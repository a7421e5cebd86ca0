"""Bodies in every content coding, packed as services pack them."""

import gzip
import random
import sys
import zlib
from collections.abc import Callable, Sequence

import brotli  # type: ignore[import-untyped]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Pack = Callable[[bytes], bytes]


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def br(body: bytes) -> bytes:
    packed: bytes = brotli.compress(body, quality=4)
    return packed


def zst(body: bytes) -> bytes:
    return zstd.compress(body)


def zst_with_checksum(body: bytes) -> bytes:
    return zstd.compress(body, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS: dict[bytes, Pack] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": br,
    b"zstd": zst,
}


def pack(codings: bytes, body: bytes) -> bytes:
    """The body under a Content-Encoding value."""
    for name in filter(None, codings.split(b", ")):
        body = PACKERS[name](body)
    return body


def flushed(coding: bytes, pieces: Sequence[bytes]) -> list[bytes]:
    """A stream as servers send it: what each wire chunk holds can be read when it has come."""
    if coding == b"br":
        squeezer = brotli.Compressor(quality=4)
        wire = [squeezer.process(piece) + squeezer.flush() for piece in pieces]
        return [*wire, squeezer.finish()]
    if coding == b"zstd":
        frame = zstd.ZstdCompressor()
        wire = [frame.compress(piece, zstd.ZstdCompressor.FLUSH_BLOCK) for piece in pieces]
        return [*wire, frame.flush()]
    packer = zlib.compressobj(wbits=31 if coding == b"gzip" else 15)
    wire = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*wire, packer.flush()]


def bulk(size: int) -> bytes:
    """A large body that packs well, but no better than text does."""
    noise = random.Random(1)
    blocks = [noise.randbytes(1024) + bytes(15 * 1024) for _ in range(size // (16 * 1024) + 1)]
    return b"".join(blocks)[:size]
