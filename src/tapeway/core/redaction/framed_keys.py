"""Finds keys of a known form that have their length before them, as in binary messages.

The octet of a length may look like a letter that belongs to the key, and so may the octet behind the
key, which begins the next field. A key whose length is known begins and ends there all the same.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from tapeway.core.automata import compile_for_bytes
from tapeway.core.redaction import patterns
from tapeway.core.redaction.key_patterns import KEY_PATTERNS
from tapeway.core.redaction.spans import Span

_LEAST, _MOST = 16, patterns.MAX_LENGTH
_BLANK = 32
_IN_TEXTS = b"\0\t\n\f\r\x1b\x1e"
"""Control characters that may stand before a key in a text, or between texts."""
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_TAGS = b"\0\nx"
"""The tag of a text that is the first field in protobuf, that of a text in CBOR, and the first octets
of a longer number.
"""
_SHORT_CBOR = 0x60
"""Begins a text of up to 23 octets in CBOR, with the length added."""
_SHORT_MESSAGE_PACK = 0xA0
"""Likewise of up to 31 octets in MessagePack."""
_LEAST_FIRST = 0xC0
"""Begins a character beyond ASCII in UTF-8, of which any other octet is less."""
_LAST_OF_VARINT = 127
"""All octets of a varint but the last have the eighth bit; lower groups of seven come first."""


def may_have_any(octets: bytes) -> bool:
    """Whether `find` is worth calling."""
    return _beginnings().search(octets) is not None


def find(octets: bytes) -> Iterator[Span]:
    """Each key with its length before it."""
    at = last_end = 0
    while (candidate := _beginnings().search(octets, at)) is not None:
        span = _framed_key(octets, candidate.start(), last_end)
        if span is not None:
            yield span
        at = candidate.start() + 1
        if span is not None:
            at = last_end = span.end


def _framed_key(octets: bytes, begin: int, last_end: int) -> Span | None:
    """The key that begins there; `last_end` is where the key before it ended."""
    lengths = _lengths_before(octets, begin, begins_field=begin - 1 == last_end)
    for size in sorted(lengths, reverse=True):
        end = begin + size
        if _LEAST <= size <= _MOST and end <= len(octets):
            for span in patterns.find_patterns(octets[begin:end]):
                if (span.start, span.end) == (0, size):
                    return Span(begin, end, span.secret)
    return None


def _lengths_before(octets: bytes, begin: int, *, begins_field: bool) -> set[int]:
    """The lengths that the octets before a text may say it has.

    Signs, blanks, NUL and characters beyond ASCII say none, since they stand before keys in texts
    too. A letter says one where a field begins with it, or where the tag of a field is before it.
    """
    second, last = b"  "[: max(0, 2 - begin)] + octets[max(0, begin - 2) : begin]
    lengths: set[int] = set()
    tagged = begins_field or second in _TAGS or _is_control(second) or second > _LAST_OF_VARINT
    if tagged and last in _WORD:
        lengths |= {last, last - _SHORT_CBOR}
    if _is_control(last) or last >= _LEAST_FIRST or (second <= _LAST_OF_VARINT < last):
        lengths |= {last, last - _SHORT_MESSAGE_PACK}
    if second > _LAST_OF_VARINT and _is_control(last):
        lengths.add(last << 7 | second & _LAST_OF_VARINT)
    if _is_control(second):
        lengths.add(second << 8 | last)
    # Avro doubles a length.
    return lengths | {size // 2 for size in lengths if not size % 2}


def _is_control(octet: int) -> bool:
    return octet < _BLANK and octet not in _IN_TEXTS


@cache
def _beginnings() -> Any:
    begins = [pattern.begins for pattern in KEY_PATTERNS if not pattern.before]
    return compile_for_bytes("|".join(begins).encode())
