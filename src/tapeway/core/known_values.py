"""Values known to be secret, found in a text in whatever way they are written there."""

import re
from collections.abc import Iterable, Iterator

from tapeway.core.credentials import Secret
from tapeway.core.disguises import disguises
from tapeway.core.placeholders import PLACEHOLDER
from tapeway.core.spans import Span

_BEHIND_NUMBER = re.compile(rb"\s*(?:[,\]}]|\Z)")
_ESCAPED = re.compile(rb"\\.")


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
        self.cores = tuple([each.core for value in by_value for each in disguises(value)])

    def shows(self, text: bytes) -> bool:
        """Whether it is worth looking closer: a plain search is many times as fast."""
        for core in self.cores:  # noqa: SIM110 - any() costs five times the search
            if core in text:
                return True
        return False

    def find(self, text: bytes, start: int = 0) -> Iterator[Span]:
        """Each place from `start` on that holds one of them, in no order; they may overlap."""
        for secret in self.secrets:
            for disguise in disguises(secret.value):
                for first, behind in disguise.find(text, start):
                    yield Span(first, behind, secret)


NOBODYS = KnownValues()
"""None at all."""


def in_json(text: bytes, spans: Iterable[Span]) -> Iterator[Span]:
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
