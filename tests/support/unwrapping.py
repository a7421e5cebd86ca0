"""What is wrapped up in bytes: compressed, in base64, or sent piece by piece over a stream's events.

A search of the outside alone would not see it.
"""

import base64
import binascii
import json
import re
import sys
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

import brotli  # type: ignore[import-untyped]
import re2  # type: ignore[import-untyped]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_DEPTH = 3
"""A compressed body in base64 in a page that came compressed."""

# Python's own engine would read each run of letters again from each of its letters.
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
# Short runs are words and ids; a compressed canary needs more. Line ends may stand escaped.
_BASE64 = re2.compile(rb"(?:[A-Za-z0-9+/_-]|\\n|\\/){32,}={0,2}", _BYTES)
_HEX = re2.compile(rb"(?:[0-9a-f]{2}){40,}|(?:[0-9A-F]{2}){40,}", _BYTES)
_MAGICS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\x78\x01": "deflate"}
_MAGICS |= {b"\x78\x9c": "deflate", b"\x78\xda": "deflate", b"\x78\x5e": "deflate"}
_WINDOW_BITS = {"gzip": 31, "deflate": 15, "bare deflate": -15}
_DATA = re.compile(r"^(?:data: ?)?(\{.*\})\r?$", re.MULTILINE)


@lru_cache(maxsize=4096)
def unwrapped(content: bytes, depth: int = MAX_DEPTH) -> tuple[tuple[str, bytes], ...]:
    """What can be taken out of these bytes, each with a word on how, and what is in that in turn."""
    if not depth or not content:
        return ()
    found = dict[bytes, str]()
    for how, inner in (*_opened(content), *_coded(content), *_plain(content), *_streamed(content)):
        if inner:
            found.setdefault(inner, how)
    deeper = [
        (f"{how}, {further}", innermost)
        for inner, how in found.items()
        for further, innermost in unwrapped(inner, depth - 1)
    ]
    return (*((how, inner) for inner, how in found.items()), *deeper)


def _opened(content: bytes) -> Iterator[tuple[str, bytes]]:
    # What has no magic number can only be tried from the start.
    for coding in ("brotli", "bare deflate"):
        yield coding, _as_far_as_it_goes(coding, content)
    for magic, coding in _MAGICS.items():
        at = content.find(magic)
        while at >= 0:
            yield f"{coding} at {at}", _as_far_as_it_goes(coding, content[at:])
            at = content.find(magic, at + 1)


def _as_far_as_it_goes(coding: str, content: bytes) -> bytes:
    # Cut short, damaged or followed by something else: what came out before counts too.
    if coding in _WINDOW_BITS:
        return _inflated(content, _WINDOW_BITS[coding])
    brotli_or_zstd = brotli.Decompressor().process
    if coding == "zstd":
        brotli_or_zstd = zstd.ZstdDecompressor().decompress
    out, step = b"", 1 if len(content) < 4096 else 64
    try:
        for start in range(0, len(content), step):
            out += brotli_or_zstd(content[start : start + step])
    except (brotli.error, zstd.ZstdError, EOFError):
        pass
    return out


def _inflated(content: bytes, window_bits: int) -> bytes:
    # From the longest beginning that is no error: a few tries, where each byte would be a call.
    out, good, bad, tried = b"", 0, len(content) + 1, 16
    while bad - good > 1:
        tried = min(tried, len(content))
        try:
            out, good = zlib.decompressobj(window_bits).decompress(content[:tried]), tried
        except zlib.error:
            bad = tried
        tried = good * 4 if bad > len(content) else (good + bad) // 2
    return out


def _coded(content: bytes) -> Iterator[tuple[str, bytes]]:
    for number, run in enumerate(dict.fromkeys(_BASE64.findall(content))):
        plain = run.replace(b"\\n", b"").replace(b"\\/", b"/").rstrip(b"=")
        plain = plain.replace(b"-", b"+").replace(b"_", b"/")
        try:
            yield f"base64 {number}", base64.b64decode(plain + b"=" * (-len(plain) % 4))
        except binascii.Error:
            # One character too many belongs to what stands beside it.
            yield f"base64 {number}", base64.b64decode(plain[: len(plain) // 4 * 4])
    for number, run in enumerate(dict.fromkeys(_HEX.findall(content))):
        yield f"hex {number}", bytes.fromhex(run.decode())


def _plain(content: bytes) -> Iterator[tuple[str, bytes]]:
    # Some characters escaped and others not: no list of encodings has them all.
    if b"%" in content:
        yield "percent-decoded", unquote_to_bytes(content)
    if b"\\" in content:
        text = content.decode(errors="replace")
        strings = [
            string for value in (_parsed(text), *_values(text)) for string in _strings(value)
        ]
        yield "strings", "\n".join(strings).encode(errors="replace")


def _streamed(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The pieces of text that stand at one place in event after event, put together."""
    text = content.decode(errors="replace")
    for number, events in enumerate((_values(text), *_streams_within(text))):
        pieces = dict[str, list[str]]()
        for event in events:
            for path, leaf in _leaves(event):
                pieces.setdefault(path, []).append(leaf)
        for path, parts in pieces.items():
            if len(parts) > 1:
                yield f"events {number} at {path}", "".join(parts).encode(errors="replace")


def _values(text: str) -> list[Any]:
    return [value for line in _DATA.findall(text) if (value := _parsed(line)) is not None]


def _streams_within(text: str) -> Iterator[list[Any]]:
    # A recorded stream is itself a string in a document, in one piece or cut into chunks.
    for document in (_parsed(text), *_values(text)):
        for joined in _strings(document):
            if "data:" in joined or '"}\n{"' in joined or "}\n{" in joined:
                yield _values(joined)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        own = [part if isinstance(part, str) else "" for part in value]
        yield "".join(own)
        for part in value:
            yield from _strings(part)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part, f"{path}[]")
