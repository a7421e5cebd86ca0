"""Places in a text that hold a secret, and the text with something else in those places.

What stands in a cassette where a secret stood.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from tapeway.core.redaction.credentials import Secret

PLACEHOLDER = re.compile(rb"REDACTED\.[A-Za-z0-9_-]+\.[0-9a-p]{8}")
"""Safe in JSON, URLs, header fields and cookies alike. What is made here has no digits, and so is no
key to the scanners that people run over their repositories; earlier ones had them."""

SHORT_PREFIX = "short-"
"""Marks the placeholder of a value too short to be a key for certain: it still tells requests
apart in the match key, where a long one is left out."""
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_ODD = re.compile(r"[^A-Za-z_-]+")


@dataclass(frozen=True, slots=True)
class Span:
    """A secret from `start` to before `end`.

    `quote` goes around what stands for it: where a number stood, JSON needs a string. Without a
    secret the span is a further piece of the one before and is emptied.
    """

    start: int
    end: int
    secret: Secret | None
    quote: bytes = b""


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, overlapping ones made one that is named after the first and longest."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start, -each.end, each.secret is None)):
        if not found or span.start >= found[-1].end:
            found.append(span)
        else:
            last = found[-1]
            end, secret = max(last.end, span.end), last.secret or span.secret
            found[-1] = replace(last, end=end, secret=secret)
    return found


def replace_spans(
    whole: bytes, lengths: Sequence[int], spans: Sequence[tuple[Span, bytes]]
) -> list[bytes]:
    """The pieces of these lengths with each span exchanged, every border where it was.

    A span that a border cut in two goes to the piece it began in.
    """
    borders = deque(accumulate(lengths))
    moved: list[int] = []
    pieces: list[bytes] = []
    at = size = 0
    for span, instead in [*spans, (Span(len(whole), len(whole), None), b"")]:
        while borders and borders[0] <= span.start:
            moved.append(size + borders.popleft() - at)
        pieces += whole[at : span.start], instead
        size += span.start - at + len(instead)
        at = span.end
        while borders and borders[0] < span.end:
            borders.popleft()
            moved.append(size)
    mended = b"".join(pieces)
    return [mended[start:end] for start, end in pairwise([0, *moved])]


def placeholder(label: str, digest: bytes) -> bytes:
    """What stands for a secret seen in this place, of which the digest tells it from others."""
    mark = digest[:4].hex().translate(_LETTERS)
    return f"REDACTED.{_ODD.sub('-', label) or 'value'}.{mark}".encode()
