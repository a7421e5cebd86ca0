"""SHA-256 that leaves the interpreter alone where letting it go would only keep others waiting.

hashlib lets other threads run while it computes the digest of 2,048 octets or more. A thread that
does so for each of many recordings takes the interpreter back before one that waits for it is
awake (5 microseconds against 80), and as the waiting one is told each time that it is free, it
never comes to insist: the event loop waited up to 147 ms while 52 MiB were exported.
"""

import hashlib

_AT_ONCE = 2047
"""Octets for which hashlib keeps the interpreter (HASHLIB_GIL_MINSIZE of CPython is one more)."""

_SHORT = 64 * 1024
"""Octets whose digest takes less time than another thread needs to wake up."""


def sha256(data: bytes) -> "hashlib._Hash":
    """`hashlib.sha256(data)`, which keeps the interpreter if `data` is short."""
    if len(data) <= _AT_ONCE:
        return hashlib.sha256(data)
    digest = hashlib.sha256()
    update(digest, data)
    return digest


def update(digest: "hashlib._Hash", data: bytes) -> None:
    """`digest.update(data)`, which keeps the interpreter if `data` is short."""
    if not _AT_ONCE < len(data) <= _SHORT:
        digest.update(data)
        return
    view = memoryview(data)
    for start in range(0, len(data), _AT_ONCE):
        digest.update(view[start : start + _AT_ONCE])
