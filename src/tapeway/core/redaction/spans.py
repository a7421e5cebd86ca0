"""Places of secrets in a text (spans), and the text with placeholders in those places."""

import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Protocol

from tapeway.core.model.messages import ChunkTimes
from tapeway.core.redaction.credentials import MIN_VALUE, Secret

PLACEHOLDER = re.compile(rb"REDACTED\.[A-Za-z0-9_-]+\.[0-9a-p]{8}|RED\.(?:-*[a-p]{8}|[a-p]{1,6}-)")
"""Safe in JSON, URLs, header fields and cookies. New placeholders have no digits, so that scanners
of repositories do not take them for keys; earlier ones had digits. The forms without a label are
those of short values whose length is kept; each form shows where it ends, whatever follows.
"""

MARKS = (b"REDACTED.", b"RED.")
"""How each placeholder begins."""

SHORT_PREFIX = "short-"
"""Begins the label of a value too short to be a key for certain. The placeholder counts in the match
key, unlike the placeholder of a long value.
"""

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_DIGITS = {letter: digit for digit, letter in _LETTERS.items() if digit != letter}
_DIGEST_PART = 4
_NOT_IN_LABEL = re.compile(r"[^A-Za-z_-]+")
_LEAST_LABELLED = len("REDACTED.x.abcdefgh")
_LEAST_UNLABELLED = len("RED.abcdefgh")
_LEAST_SHORT = len("RED.a-")
_AFTER_NUMBER = re.compile(rb"\s*(?:[,\]}]|\Z)")
_ESCAPED = re.compile(rb"\\.")

_LONGEST_PADDING = 2
"""The equals signs at the end of base64, which the place of a value there may or may not include."""


class Layer(Protocol):
    """One encoding around a text."""

    @property
    def size(self) -> int:
        """The length of the text."""

    def encode(self, text: bytes) -> bytes:
        """What stands for another text of this length in the encoding."""

    def decode(self, encoded: bytes) -> bytes | None:
        """The decoded text of a place, None if the place is not encoded."""


@dataclass(frozen=True, slots=True)
class Span:
    """A secret from `start` to before `end`.

    `quote` goes around its placeholder: in place of a number, JSON needs a string. `layers` are the
    encodings around it, the innermost first. A span without a secret continues the one before, and
    becomes empty.
    """

    start: int
    end: int
    secret: Secret | None
    quote: bytes = b""
    layers: tuple[Layer, ...] = ()


def label_for(name: str, value: bytes) -> str:
    """The label of a value that its field or parameter name marks as a secret."""
    return name.lower() if len(value) >= MIN_VALUE else f"{SHORT_PREFIX}{name.lower()}"


def secret_digest(salt: bytes, value: bytes) -> bytes:
    """The digest of a secret in the cassette with this salt, of which placeholders have a part."""
    return hmac.digest(salt, value, "sha256")


def placeholder(label: str, digest: bytes) -> bytes:
    """The placeholder of a secret seen in this place; the digest distinguishes it from others."""
    return f"REDACTED.{written_label(label)}.{_letters(digest)}".encode()


def fitted_placeholder(label: str, digest: bytes, size: int) -> bytes:
    """The placeholder of a secret in so many octets.

    A few octets leave no room for the label, then for some of the letters, and at last for any.
    """
    letters = _letters(digest)
    if size >= _LEAST_LABELLED:
        room = size - _LEAST_LABELLED + 1
        return f"REDACTED.{written_label(label)[:room].ljust(room, '-')}.{letters}".encode()
    if size >= _LEAST_UNLABELLED:
        return f"RED.{letters.rjust(size - len('RED.'), '-')}".encode()
    if size >= _LEAST_SHORT:
        return f"RED.{letters[: size - len('RED.-')]}-".encode()
    return b"*" * size


def placeholders_of(text: bytes) -> tuple[str, ...]:
    """The placeholders in a text, each once."""
    return tuple([found.decode() for found in sorted({*PLACEHOLDER.findall(text)})])


def digests_of(placeholders: Iterable[str]) -> set[bytes | None]:
    """The parts of digests in placeholders."""
    return {placeholder_digest(placeholder.encode()) for placeholder in placeholders}


def digest_start(salt: bytes, value: bytes) -> bytes:
    """The part of a secret's digest that its placeholders have."""
    return secret_digest(salt, value)[:_DIGEST_PART]


def placeholder_digest(placeholder: bytes) -> bytes | None:
    """The part of the digest in a placeholder, None where it has only some of the letters."""
    written = placeholder.rpartition(b".")[2].strip(b"-").decode()
    # Earlier placeholders had the digits themselves.
    digits = written.translate(_DIGITS) if written.isalpha() else written
    return bytes.fromhex(digits) if len(digits) == 2 * _DIGEST_PART else None


def label_of(placeholder: bytes) -> str:
    """The label that a placeholder shows."""
    return shown_label(placeholder.decode()).removeprefix(SHORT_PREFIX).rstrip("-")


def shown_label(placeholder: str) -> str:
    """The label in a placeholder as it stands there."""
    return placeholder.split(".")[1] if placeholder.count(".") > 1 else "value"


def _letters(digest: bytes) -> str:
    return digest[:_DIGEST_PART].hex().translate(_LETTERS)


def written_label(label: str) -> str:
    """A label as placeholders have it."""
    return _NOT_IN_LABEL.sub("-", label) or "value"


@lru_cache(maxsize=1024)
def secret_placeholder(salt: bytes, label: str, value: bytes) -> bytes:
    """The placeholder of a secret in the cassette with this salt.

    Remembered, since a client sends the same credential with each request.
    """
    return placeholder(label, secret_digest(salt, value))


def replacement(span: Span, salt: bytes, *, keeps_length: bool = False) -> bytes:
    """The replacement of a span in the cassette with this salt.

    Inside an encoding a placeholder always has the length of what it replaces, so that the rest is
    decoded unchanged; with `keeps_length` the whole span keeps its length.
    """
    size = span.end - span.start
    if span.secret is None:
        return b"-" * size if keeps_length else b""
    label, digest = span.secret.label, secret_digest(salt, span.secret.value)
    if span.layers:
        text = fitted_placeholder(label, digest, span.layers[0].size)
        for layer in span.layers:
            text = layer.encode(text)
        if len(text) == size or not keeps_length:
            return text
    quotes = 2 * len(span.quote)
    if keeps_length and size <= quotes:
        # Too few octets for a string of JSON's.
        return b"0" * size
    text = (
        fitted_placeholder(label, digest, size - quotes)
        if keeps_length
        else placeholder(label, digest)
    )
    return span.quote + text + span.quote


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in order; overlapping ones are merged, and named after the first and longest.

    Finds in a decoded text come before the find of the encoding.
    """
    merged: list[Span] = []
    for span in sorted(
        spans,
        key=lambda marked: (marked.start, not marked.layers, -marked.end, marked.secret is None),
    ):
        if not merged or span.start >= merged[-1].end:
            merged.append(span)
        elif not _is_inside(span, merged[-1]):
            last = merged[-1]
            end, secret = max(last.end, span.end), last.secret or span.secret
            merged[-1] = replace(last, end=end, secret=secret, layers=())
    return merged


def _is_inside(span: Span, last: Span) -> bool:
    """Whether a span is the encoded form of what was found in the decoded text of the span before."""
    if not last.layers or span.secret is None or span.end > last.end + _LONGEST_PADDING:
        return False
    return bool(span.layers) or span.end - span.start != len(span.secret.value)


Replaced = tuple[int, int, int]
"""Where a secret began and ended, and the length of its placeholder."""


def replace_spans(whole: bytes, spans: Iterable[tuple[Span, bytes]]) -> bytes:
    """The text with each span replaced; they are in order and do not overlap."""
    pieces: list[bytes] = []
    at = 0
    for span, replacement in spans:
        pieces += whole[at : span.start], replacement
        at = span.end
    return b"".join([*pieces, whole[at:]])


def moved_ends(lengths: Iterable[int], replaced: Iterable[Replaced]) -> Iterator[int]:
    """Where pieces of these lengths end after secrets were replaced, which are in order.

    An end inside a secret moves to the end of its placeholder.
    """
    waiting = iter(replaced)
    span = next(waiting, None)
    shift = 0
    for border in accumulate(lengths):
        moved = border + shift
        while span is not None and span[0] < border:
            start, end, placeholder_size = span
            moved = start + shift + placeholder_size + max(0, border - end)
            if border < end:
                break
            shift += placeholder_size - (end - start)
            span = next(waiting, None)
        yield moved


def move_chunk_ends(chunk_times: ChunkTimes, replaced: Iterable[Replaced]) -> ChunkTimes:
    """The chunks of a body in which secrets were replaced; an empty one is joined to the next."""
    ends = pairwise([0, *moved_ends(chunk_times.lengths, replaced)])
    lengths = [end - start for start, end in ends]
    return ChunkTimes(zip(chunk_times.times, lengths, strict=True))


def json_safe_spans(text: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """The spans to replace if the text is JSON, so that it stays JSON.

    A number becomes a string, so the placeholder needs quotes. After a minus the number is a
    different value, and is left.
    """
    numbers = _NumberStarts(text)
    for span in sorted(spans, key=lambda marked: marked.start):
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
