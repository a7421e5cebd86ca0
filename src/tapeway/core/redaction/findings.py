"""What redaction replaced in a document, and the secrets that a text still shows."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tapeway.core.json_text import Json, Pointer, dump
from tapeway.core.redaction import body_fields, coded_texts
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import HIDDEN_NAME
from tapeway.core.redaction.patterns import find_in_text
from tapeway.core.redaction.spans import PLACEHOLDER, Span, label_of, merge_spans
from tapeway.core.text import read_utf16

ENCODED = frozenset({"body_b64", "__agenttape_bytes__"})
"""The names of what is written in base64: a body, and what AgentTape has of octets anywhere."""

_LONGEST_PREFIX = 4
_SHORT = 256

# Computed from neighbouring fields.
_DERIVED = frozenset({"json_layout", "raw_b64", "match_key"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret in a document. `prefix` shows at most four characters and a quarter of it."""

    place: Pointer
    kind: str
    prefix: str


@dataclass(frozen=True, slots=True)
class SecretMatch:
    """A secret in a text: the name of the place or pattern it is known by, and where it is."""

    label: str
    offset: int
    length: int


def find_replaced(before: Json, after: Json, at: Pointer = ()) -> Iterator[Finding]:
    """Each secret that has a placeholder in the document `after` but not in `before`."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _replaced_in_objects(before, after, at)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from find_replaced(old, new, (*at, index))
    else:
        yield from _replaced_in_texts(_text(before, at), _text(after, at), at)


def find_secrets(data: bytes, known: KnownValues) -> list[SecretMatch]:
    """Every known value, every pattern of a secret, and every secret of a URL, of prose or of code that
    the text shows, in order.

    Values are recognised as they are, percent-encoded, with JSON's escapes, in base64 and in hex.
    In base64 and percent-encoding the names of fields show secrets too. What is compressed or
    encrypted has to be decoded first.
    """

    def find_decoded(text: bytes) -> list[Span]:
        named = known.allowed.without_spans(body_fields.find(text, b"", in_response=True))
        return [*_find(text, known), *named]

    spans = merge_spans([*_find(data, known), *coded_texts.find(data, find_decoded)])
    places = {
        (span.start, span.end, span.secret.label) for span in spans if span.secret is not None
    }
    return [SecretMatch(label, start, end - start) for start, end, label in sorted(places)]


def _find(data: bytes, known: KnownValues) -> Iterator[Span]:
    if known.may_occur_in(data):
        yield from known.find(data)
    found = _found_in_short(data) if len(data) <= _SHORT else find_in_text(data)
    yield from known.allowed.without_spans(found)


@lru_cache(maxsize=4096)
def _found_in_short(text: bytes) -> tuple[Span, ...]:
    # The recordings of a cassette have most of their short texts in common: names, hosts, models.
    return tuple(find_in_text(text))


def masked_prefix(secret: bytes) -> str:
    """The beginning of a secret: enough to recognise the secret, too little to use."""
    text = secret.decode("utf-8", "replace")
    return text[: min(_LONGEST_PREFIX, len(text) // 4)]


def decode_base64(text: str) -> bytes | None:
    """The octets of a text in base64, None for a text that is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _replaced_in_objects(
    before: dict[str, Json], after: dict[str, Json], at: Pointer
) -> Iterator[Finding]:
    removed = [name for name in before if name not in after and name not in _DERIVED]
    added = [name for name in after if name not in before and name not in _DERIVED]
    for old, new in zip(removed, added, strict=False):
        here = (*at, HIDDEN_NAME)
        yield from _replaced_in_texts(old.encode(), new.encode(), here)
        yield from find_replaced(before[old], after[new], here)
    for name, old_value in before.items():
        if name in after and name not in _DERIVED:
            yield from find_replaced(old_value, after[name], (*at, name))


def _replaced_in_texts(before: bytes, after: bytes, at: Pointer) -> Iterator[Finding]:
    placeholders = PLACEHOLDER.findall(after)
    between = PLACEHOLDER.split(after)
    start = 0
    for placeholder, left, right in zip(placeholders, between, between[1:], strict=False):
        start += len(left)
        end = before.find(right, start + 1) if right else len(before)
        value = before[start : end if end >= 0 else len(before)]
        if value != placeholder:
            yield Finding(at, label_of(placeholder), masked_prefix(value))
        start += len(value)
    yield from _replaced_in_coded(before, after, at)


def _replaced_in_coded(before: bytes, after: bytes, at: Pointer) -> Iterator[Finding]:
    encoded = set(coded_texts.decodings(before))
    for text in dict.fromkeys(coded_texts.decodings(after)):
        if text not in encoded and (placeholder := PLACEHOLDER.search(text)) is not None:
            beginning = text[: placeholder.start()]
            old = next((form for form in encoded if form.startswith(beginning)), b"")
            yield from _replaced_in_texts(old, text, at)


def _text(value: Json, at: Pointer) -> bytes:
    if not isinstance(value, str):
        return dump(value)
    plain = decode_base64(value) if at and at[-1] in ENCODED else None
    if plain is not None and (wide := read_utf16(plain)) is not None:
        return wide.text
    return value.encode() if plain is None else plain
