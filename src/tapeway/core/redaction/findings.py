"""What redaction replaced in a document: where, what kind of secret, and how that began.

Secrets that a text still shows: the last look at what is about to be written, or already is.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapeway.core.json_text import Json, Pointer, dump
from tapeway.core.redaction import patterns
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import HIDDEN_NAME
from tapeway.core.redaction.spans import PLACEHOLDER, SHORT_PREFIX

ENCODED = frozenset({"body_b64", "__agenttape_bytes__"})
"""The names of what is written in base64: a body, and what AgentTape has of octets anywhere."""
_SHOWN = 4

# They follow from what stands beside them.
_DERIVED = frozenset({"json_layout", "raw_b64", "match_key"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret in a document. `prefix` shows at most four characters and a quarter of it."""

    place: Pointer
    kind: str
    prefix: str


def masked_prefix(secret: bytes) -> str:
    """So little of a secret that it can be told from another and not be used."""
    text = secret.decode("utf-8", "replace")
    return text[: min(_SHOWN, len(text) // 4)]


def find_replaced(before: Json, after: Json, at: Pointer = ()) -> Iterator[Finding]:
    """Each secret for which a placeholder stands in the second document and not in the first."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _in_objects(before, after, at)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from find_replaced(old, new, (*at, index))
    else:
        yield from _in_texts(_text(before, at), _text(after, at), at)


def decode_base64(text: str) -> bytes | None:
    """The octets a text in base64 stands for; None for what is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _in_objects(before: dict[str, Json], after: dict[str, Json], at: Pointer) -> Iterator[Finding]:
    gone = [name for name in before if name not in after and name not in _DERIVED]
    new = [name for name in after if name not in before and name not in _DERIVED]
    for old, instead in zip(gone, new, strict=False):
        here = (*at, HIDDEN_NAME)
        yield from _in_texts(old.encode(), instead.encode(), here)
        yield from find_replaced(before[old], after[instead], here)
    for name, old_value in before.items():
        if name in after and name not in _DERIVED:
            yield from find_replaced(old_value, after[name], (*at, name))


def _in_texts(before: bytes, after: bytes, at: Pointer) -> Iterator[Finding]:
    marks = PLACEHOLDER.findall(after)
    between = PLACEHOLDER.split(after)
    start = 0
    for mark, left, right in zip(marks, between, between[1:], strict=False):
        start += len(left)
        end = before.find(right, start + 1) if right else len(before)
        value = before[start : end if end >= 0 else len(before)]
        if value != mark:
            label = mark.split(b".")[1].decode()
            yield Finding(at, label.removeprefix(SHORT_PREFIX), masked_prefix(value))
        start += len(value)


def _text(value: Json, at: Pointer) -> bytes:
    if not isinstance(value, str):
        return dump(value)
    plain = decode_base64(value) if at and at[-1] in ENCODED else None
    return value.encode() if plain is None else plain


@dataclass(frozen=True, slots=True)
class SecretMatch:
    """A secret in a text, by the name of the place or shape it is known by, and where it begins."""

    label: str
    offset: int
    length: int


def find_secrets(
    data: bytes, secrets: Iterable[Secret] = (), *, shapes: bool = True
) -> list[SecretMatch]:
    """Every one of these secrets, and every known shape of one, that the text shows, in order.

    Values are recognised as they are, percent-encoded, with JSON's escapes, in base64 and in hex.
    What is compressed or encrypted has to be opened first.
    """
    return seen(data, KnownValues(secrets), shapes=shapes)


def seen(data: bytes, known: KnownValues, *, shapes: bool = True) -> list[SecretMatch]:
    """The same for secrets that are looked for again and again."""
    found = set(_spans(data, known, shapes=shapes))
    return [SecretMatch(label, start, end - start) for start, end, label in sorted(found)]


def _spans(data: bytes, known: KnownValues, *, shapes: bool) -> Iterator[tuple[int, int, str]]:
    spans = list(known.find(data)) if known.may_occur_in(data) else []
    if shapes:
        spans += patterns.find_patterns(data)
    for span in spans:
        if span.secret is not None:
            yield span.start, span.end, span.secret.label
