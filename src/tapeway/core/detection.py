"""Secrets that a text still shows: the last look at what is about to be written, or already is."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapeway.core import shapes as secret_shapes
from tapeway.core.credentials import Secret
from tapeway.core.known_values import KnownValues


@dataclass(frozen=True, slots=True)
class Sighting:
    """A secret in a text, by the name of the place or shape it is known by, and where it begins."""

    label: str
    offset: int
    length: int


def find(data: bytes, secrets: Iterable[Secret] = (), *, shapes: bool = True) -> list[Sighting]:
    """Every one of these secrets, and every known shape of one, that the text shows, in order.

    Values are recognised as they are, percent-encoded, with JSON's escapes, in base64 and in hex.
    What is compressed or encrypted has to be opened first.
    """
    return seen(data, KnownValues(secrets), shapes=shapes)


def seen(data: bytes, known: KnownValues, *, shapes: bool = True) -> list[Sighting]:
    """The same for secrets that are looked for again and again."""
    found = set(_spans(data, known, shapes=shapes))
    return [Sighting(label, start, end - start) for start, end, label in sorted(found)]


def _spans(data: bytes, known: KnownValues, *, shapes: bool) -> Iterator[tuple[int, int, str]]:
    spans = list(known.find(data)) if known.shows(data) else []
    if shapes:
        spans += secret_shapes.find(data)
    for span in spans:
        if span.secret is not None:
            yield span.start, span.end, span.secret.label
