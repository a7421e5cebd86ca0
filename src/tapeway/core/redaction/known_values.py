"""Values known to be secret, found in a text in whatever way they are written there.

The ways one value can be written in a body, a URL or a header field.

A key echoed by a service may come back percent-encoded, or escaped as some JSON writer does it:
PHP escapes every slash, Go `<>&`, Gson also `='`, and JSON inside JSON doubles the backslashes. XML and HTML have entities.
It may also have been wrapped: in base64, where it begins at any of three places, and in hex.
"""

import base64
import html.entities
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.spans import PLACEHOLDER, Span

SHORTEST_WRAPPED = 12
"""Shorter values are not looked for in base64 and hex: too few characters are theirs alone."""

# Left as they are by all these writers.
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")

# A run of backslashes is one piece: its number may be anything, and none of them is looked for alone.
_PIECES = re.compile(r"\\+|[^\\]")
_PADDING = "(?:%s){0,2}"
_ALPHANUMERIC = re.compile("[A-Za-z0-9]+")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_BEHIND_NUMBER = re.compile(rb"\s*(?:[,\]}]|\Z)")
_ESCAPED = re.compile(rb"\\.")


@dataclass(frozen=True, slots=True)
class EncodedForm:
    """One way a value is written: a piece of it that is always there, and the whole.

    In base64 its first character may hold bits of what stands before the value; that one goes with
    it, since it depends on both.
    """

    constant_part: bytes
    pattern: bytes
    shares_first: bool = False

    def find(self, text: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
        """Where the text has the value in this disguise, from `start` on."""
        if self.constant_part in text:
            for match in _compiled(self.pattern).finditer(text, start):
                yield self._start(text, match.start()), match.end()

    def _start(self, text: bytes, start: int) -> int:
        if not self.shares_first or start == 0 or text[start - 1] not in _BASE64:
            return start
        before = start - 1
        while before and text[before - 1] == _BACKSLASH:
            # Of an escaped slash; any other escape is none of base64's.
            if text[start - 1] != _SLASH:
                return start
            before -= 1
        return before


_BACKSLASH, _SLASH = b"\\/"

# Most values are nowhere to be found, and compiling takes longer than to see that.
_compiled = lru_cache(maxsize=1024)(re.compile)


@lru_cache(maxsize=1024)
def encoded_forms(value: bytes) -> tuple[EncodedForm, ...]:
    """Every way the value is looked for."""
    found = [EncodedForm(constant_part(value), value_pattern(value))]
    if len(value) >= SHORTEST_WRAPPED:
        found += [_in_base64(value, offset) for offset in range(3)]
        digits = value.hex().encode()
        found += [EncodedForm(each, each) for each in (digits, digits.upper())]
    return tuple(found)


@lru_cache(maxsize=1024)
def value_pattern(value: bytes) -> bytes:
    """A regular expression without groups for the value in any of its disguises."""
    text = value.decode("utf-8", "surrogateescape")
    bare = text.rstrip("=")
    written = "".join([_written(each) for each in _PIECES.findall(bare)])
    if len(bare) < len(text):
        # The padding of base64 is often left off.
        written += _PADDING % _written("=")
    if value.isdigit():
        # As part of a longer number it would be another value.
        written = rf"(?<![0-9.]){written}(?![0-9]|\.[0-9]|[eE][0-9+-])"
    return written.encode("utf-8", "surrogateescape")


@lru_cache(maxsize=1024)
def constant_part(value: bytes) -> bytes:
    """The longest piece of the value that stands in all of its disguises unchanged."""
    pieces = _PLAIN.findall(value.decode("utf-8", "surrogateescape"))
    return max(pieces, key=len, default="").encode()


def _written(piece: str) -> str:
    if _PLAIN.fullmatch(piece):
        return re.escape(piece)
    # A plus may stand for a space and, where somebody forgot to encode it, for itself.
    ways = [way for each in ((" ", "+") if piece in " +" else (piece,)) for way in _ways(each)]
    return f"(?:{'|'.join(ways)})"


def _ways(piece: str) -> tuple[str, ...]:
    # All counts are bounded: a long run of backslashes must not be searched from each of them.
    length = len(piece)
    itself = rf"\\{{0,8}}{re.escape(piece)}"
    if piece.startswith("\\"):
        itself = rf"\\{{{length},{8 * length}}}"
    octets = piece.encode("utf-8", "surrogateescape")
    percented = "".join([f"%(?:25){{0,4}}{_hex(f'{octet:02x}')}" for octet in octets])
    if "\ud800" <= piece <= "\udfff":
        return itself, percented
    units = re.findall("....", piece.encode("utf-16-be").hex())
    escaped = "".join([rf"\\{{1,8}}u{_hex(unit)}" for unit in units])
    if piece.startswith("\\"):
        return itself, percented, escaped
    return itself, percented, escaped, _entity(piece)


def _entity(character: str) -> str:
    code = ord(character)
    named = "apos" if character == "'" else html.entities.codepoint2name.get(code, f"#{code}")
    return f"&(?:{named}|#0{{0,4}}{code}|#[xX]0{{0,4}}{_hex(f'{code:x}')});"


def _in_base64(value: bytes, offset: int) -> EncodedForm:
    # What depends on the value alone; two zero bytes stand for whatever follows it.
    coded = base64.b64encode(bytes(offset) + value + bytes(2)).decode()
    own = coded[(offset * 8 + 5) // 6 : (offset + len(value)) * 8 // 6]
    whole = "".join([_SIXTY_THIRD.get(each, each) for each in own])
    if (offset + len(value)) * 8 % 6:
        whole += _SHARED
    cores = _ALPHANUMERIC.findall(own)
    whole += _PADDING % _written("=")
    return EncodedForm(max(cores, key=len, default="").encode(), whole.encode(), offset > 0)


def _hex(digits: str) -> str:
    return "".join([f"[{each}{each.upper()}]" if each.isalpha() else each for each in digits])


# Both alphabets, in whatever way they are written.
_SIXTY_THIRD = {"+": f"(?:-|{_written('+')})", "/": f"(?:_|{_written('/')})"}
_SHARED = rf"(?:[A-Za-z0-9_-]|{'|'.join([_SIXTY_THIRD[each] for each in '+/'])})"


class KnownValues:
    """A fixed set of secrets to look for."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        # A client that follows a recorded link sends a placeholder back: that is no secret.
        by_value = {
            secret.value: secret
            for secret in secrets
            if secret.value and not PLACEHOLDER.fullmatch(secret.value)
        }
        self.secrets = tuple(by_value.values())
        self.constant_parts = tuple(
            [each.constant_part for value in by_value for each in encoded_forms(value)]
        )

    def may_occur_in(self, text: bytes) -> bool:
        """Whether it is worth looking closer: a plain search is many times as fast."""
        for part in self.constant_parts:  # noqa: SIM110 - any() costs five times the search
            if part in text:
                return True
        return False

    def find(self, text: bytes, start: int = 0) -> Iterator[Span]:
        """Each place from `start` on that holds one of them, in no order; they may overlap."""
        for secret in self.secrets:
            for form in encoded_forms(secret.value):
                for first, end in form.find(text, start):
                    yield Span(first, end, secret)


NO_KNOWN_VALUES = KnownValues()
"""None at all."""


def json_safe_spans(text: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """The spans as they may be exchanged where the text is JSON, which has to stay JSON.

    A string takes the place of a number; and behind a minus it is another number.
    """
    numbers = _Numbers(text)
    for span in sorted(spans, key=lambda each: each.start):
        is_digits = text[span.start : span.end].isdigit()
        if not is_digits or not numbers.begins(span.start) or not _behind_number(text, span.end):
            yield span
        elif not text.endswith(b"-", 0, span.start):
            yield Span(span.start, span.end, span.secret, b'"')


def _behind_number(text: bytes, at: int) -> bool:
    return _BEHIND_NUMBER.match(text, at) is not None


class _Numbers:
    """Tells, at one place after the other, whether a number of JSON's may begin there."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0
        self._inside_string = False
        self._begins = False

    def begins(self, at: int) -> bool:
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
