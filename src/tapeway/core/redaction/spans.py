"""Places of secrets in a text (spans), and the text with placeholders in those places."""

import hmac
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from tapeway.core.redaction.credentials import MIN_VALUE, Secret

PLACEHOLDER = re.compile(rb"REDACTED\.[A-Za-z0-9_-]+\.[0-9a-p]{8}")
"""Safe in JSON, URLs, header fields and cookies. New placeholders have no digits, so that scanners
of repositories do not take them for keys; earlier ones had digits.
"""

SHORT_PREFIX = "short-"
"""Begins the label of a value too short to be a key for certain: its placeholder counts in the
match key, unlike that of a long one.
"""

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_NOT_IN_LABEL = re.compile(r"[^A-Za-z_-]+")
_AFTER_NUMBER = re.compile(rb"\s*(?:[,\]}]|\Z)")
_ESCAPED = re.compile(rb"\\.")


@dataclass(frozen=True, slots=True)
class Span:
    """A secret from `start` to before `end`.

    `quote` goes around its placeholder: in place of a number, JSON needs a string. A span without a
    secret continues the one before, and becomes empty.
    """

    start: int
    end: int
    secret: Secret | None
    quote: bytes = b""


def label_for(name: str, value: bytes) -> str:
    """The label of a value that its field or parameter name marks as a secret."""
    return name.lower() if len(value) >= MIN_VALUE else f"{SHORT_PREFIX}{name.lower()}"


def secret_digest(salt: bytes, value: bytes) -> bytes:
    """The digest of a secret in the cassette with this salt, of which placeholders have a part."""
    return hmac.digest(salt, value, "sha256")


def placeholder(label: str, digest: bytes) -> bytes:
    """The placeholder of a secret seen in this place; the digest distinguishes it from others."""
    letters = digest[:4].hex().translate(_LETTERS)
    return f"REDACTED.{_NOT_IN_LABEL.sub('-', label) or 'value'}.{letters}".encode()


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in order; overlapping ones are merged, and named after the first and longest."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start, -each.end, each.secret is None)):
        if not merged or span.start >= merged[-1].end:
            merged.append(span)
        else:
            last = merged[-1]
            end, secret = max(last.end, span.end), last.secret or span.secret
            merged[-1] = replace(last, end=end, secret=secret)
    return merged


def replace_spans(
    whole: bytes, lengths: Sequence[int], spans: Sequence[tuple[Span, bytes]]
) -> list[bytes]:
    """The pieces of these lengths with each span replaced, their boundaries preserved.

    A span across a boundary goes to the piece it began in.
    """
    borders = deque(accumulate(lengths))
    moved: list[int] = []
    pieces: list[bytes] = []
    at = size = 0
    for span, replacement in [*spans, (Span(len(whole), len(whole), None), b"")]:
        while borders and borders[0] <= span.start:
            moved.append(size + borders.popleft() - at)
        pieces += whole[at : span.start], replacement
        size += span.start - at + len(replacement)
        at = span.end
        while borders and borders[0] < span.end:
            borders.popleft()
            moved.append(size)
    redacted = b"".join(pieces)
    return [redacted[start:end] for start, end in pairwise([0, *moved])]


def json_safe_spans(text: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """The spans to replace if the text is JSON, so that it stays JSON.

    A number becomes a string, so its placeholder needs quotes. After a minus it is another number,
    and is left.
    """
    numbers = _NumberStarts(text)
    for span in sorted(spans, key=lambda each: each.start):
        is_digits = text[span.start : span.end].isdigit()
        if (
            not is_digits
            or not numbers.may_begin(span.start)
            or _AFTER_NUMBER.match(text, span.end) is None
        ):
            yield span
        elif not text.endswith(b"-", 0, span.start):
            yield Span(span.start, span.end, span.secret, b'"')


class _NumberStarts:
    """Decides, for increasing positions, whether a JSON number may begin there."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0
        self._inside_string = False
        self._begins = False

    def may_begin(self, at: int) -> bool:
        between = self._text[self._at : at]
        if not between and at:
            return self._begins
        line = between.rfind(b"\n") + 1
        # A string of JSON's ends on its line.
        self._inside_string &= not line
        self._inside_string ^= _ESCAPED.sub(b"", between[line:]).count(b'"') % 2 == 1
        before = between[line:].rstrip(b"- \t\r")[-1:]
        self._begins = not self._inside_string and before in (b"", b":", b",", b"[")
        self._at = at
        return self._begins
