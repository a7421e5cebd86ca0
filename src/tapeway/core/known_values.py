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


def in_json(text: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """The spans as they may be exchanged where the text is JSON, which has to stay JSON.

    A string takes the place of a number; and behind a minus it is another number.
    """
    for span in spans:
        is_digits = text[span.start : span.end].isdigit()
        before = _before_number(text, span) if is_digits else None
        if before is None:
            yield span
        elif not before.endswith(b"-"):
            yield Span(span.start, span.end, span.secret, b'"')


def _before_number(text: bytes, span: Span) -> bytes | None:
    """What stands before digits on their line, or None where they are no number of JSON's."""
    before = text[text.rfind(b"\n", 0, span.start) + 1 : span.start]
    if before.rstrip(b"- \t\r")[-1:] not in (b"", b":", b",", b"["):
        return None
    # A string of JSON's ends on its line.
    inside_string = _ESCAPED.sub(b"", before).count(b'"') % 2
    return None if inside_string or not _BEHIND_NUMBER.match(text, span.end) else before
