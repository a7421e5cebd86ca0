"""Whether a recorded text with placeholders is a request's text with secrets in their places.

A placeholder has a short HMAC of the secret under the cassette's salt. The request's text at the
place is hashed and compared, so no list of secrets is needed.
"""

import html
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

from tapeway.core.redaction import coded_texts
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.spans import (
    MARKS,
    PLACEHOLDER,
    Layer,
    Span,
    merge_spans,
    placeholder,
    secret_digest,
    secret_placeholder,
)

_LONG_IN_BASE64, _SHORT_IN_BASE64 = [tuple(coded_texts.base64_forms(mark)) for mark in MARKS]
_ENCODED_MARKS = (
    *_LONG_IN_BASE64,
    *_SHORT_IN_BASE64,
    *[form for text in _LONG_IN_BASE64 for form in coded_texts.base64_forms(text)],
)
"""Marks in base64. A short mark in base64 twice is not looked for: each search takes time."""
_ALL_MARKS = (*MARKS, *_ENCODED_MARKS)
_PLACEHOLDER = re.compile(PLACEHOLDER.pattern.decode())
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+")
_MOST_TRIES = 256
"""Of one text: a short piece between two placeholders may occur very often."""

_MOST_ENCODED = 4
"""How many times a text may be percent-encoded."""

_ANY_IN_PATH = re.compile(r"REDACTED\.(?:telegram-token|slack-webhook|discord-webhook)\.")
"""Labels of keys of a known form in paths: any key answers there."""


class SecretDigests:
    """Digests of secrets under the salt of a cassette."""

    def __init__(self, salt: str) -> None:
        self.salt = salt
        self._salt = salt.encode()

    def placeholder(self, label: str, value: bytes) -> bytes:
        """The placeholder of a secret."""
        return secret_placeholder(self._salt, label, value)

    def text(self, value: bytes) -> str:
        """A digest that tells values apart and shows none."""
        return secret_digest(self._salt, value)[:16].hex()

    def is_of(self, recorded: str, text: str) -> bool:
        """Whether a recorded placeholder stands for a text, or for the text's own placeholder."""
        own = digest_of(recorded)
        if _PLACEHOLDER.fullmatch(text):
            # That of a short value has a part of the letters.
            other = digest_of(text)
            return own.startswith(other) or other.startswith(own)
        return any(
            digest.startswith(own) for value in spellings(text) for digest in self._digests(value)
        )

    def _digests(self, value: bytes) -> tuple[str, str]:
        digest = secret_digest(self._salt, value)
        # Earlier placeholders had the digits of the digest, newer ones letters in their place.
        return digest[:4].hex(), digest_of(placeholder("value", digest).decode())


def digest_of(text: str) -> str:
    """The digest at the end of a placeholder; of a placeholder for a short value its beginning."""
    return text.rpartition(".")[2].strip("-")


def may_have_placeholder(octets: bytes) -> bool:
    """Whether octets may have a placeholder in them, plain or in base64."""
    # `find`, since `in` makes an error message, and forgets it, before it searches bytes for bytes.
    return max(map(octets.find, _ALL_MARKS)) >= 0


def has_placeholder(text: str) -> bool:
    """Whether a text has a placeholder in it, plain or in base64."""
    octets = text.encode("utf-8", "surrogatepass")
    return may_have_placeholder(octets) and bool(_placeholders(octets))


def is_placeholder(text: str) -> bool:
    """Whether a text is a placeholder and nothing else."""
    return _PLACEHOLDER.fullmatch(text) is not None


def placeholders_in(text: str) -> list[str]:
    """The placeholders in a text, in order."""
    return _PLACEHOLDER.findall(text)


def stands_for_any_in_path(recorded: str) -> bool:
    """Whether a placeholder in a path is that of a key of a known form."""
    return _ANY_IN_PATH.match(recorded) is not None


def fits(recorded: str, text: str, accepts: Callable[[str, str], bool]) -> bool:
    """Whether a text is the recorded one with something accepted in the place of each placeholder.

    `accepts` is given a placeholder and what stands in its place, both decoded from base64.
    """
    pieces, between = _split(recorded)
    if not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
        return False
    at, tries = len(pieces[0]), 0
    for number, hole in enumerate(between[:-1], start=1):
        # Between two placeholders side by side an empty piece is found everywhere.
        end = text.find(pieces[number], at)
        while end >= 0 and tries < _MOST_TRIES and not hole.takes(text[at:end], accepts):
            end, tries = text.find(pieces[number], end + 1), tries + 1
        if end < 0 or tries == _MOST_TRIES:
            return False
        at = end + len(pieces[number])
    end = len(text) - len(pieces[-1])
    return end >= at and between[-1].takes(text[at:end], accepts)


class _Hole(NamedTuple):
    """A placeholder in a recorded text, and the encodings around it, the innermost first."""

    placeholder: str
    layers: tuple[Layer, ...]

    def takes(self, text: str, accepts: Callable[[str, str], bool]) -> bool:
        """Whether what stands there is accepted."""
        if not self.layers:
            return accepts(self.placeholder, text)
        octets: bytes | None = text.encode("utf-8", "surrogatepass")
        for layer in reversed(self.layers):
            octets = layer.decode(octets) if octets is not None else None
        return octets is not None and accepts(
            self.placeholder, octets.decode("utf-8", "surrogateescape")
        )


def _split(recorded: str) -> tuple[list[str], list[_Hole]]:
    """The pieces of text between placeholders, and the placeholders."""
    octets = recorded.encode("utf-8", "surrogatepass")
    pieces: list[str] = []
    holes: list[_Hole] = []
    at = 0
    for span in _placeholders(octets):
        pieces.append(octets[at : span.start].decode("utf-8", "surrogatepass"))
        text = span.secret.value if span.secret is not None else b""
        holes.append(_Hole(text.decode(), span.layers))
        at = span.end
    return [*pieces, octets[at:].decode("utf-8", "surrogatepass")], holes


def _placeholders(octets: bytes) -> list[Span]:
    """The placeholders in a text, plain and in base64, in order."""

    def search(text: bytes) -> list[Span]:
        return [Span(*match.span(), Secret("", match[0])) for match in PLACEHOLDER.finditer(text)]

    hidden = coded_texts.find(octets, search) if max(map(octets.find, _ENCODED_MARKS)) >= 0 else []
    return merge_spans([*search(octets), *hidden])


def spellings(text: str) -> Iterator[bytes]:
    """The values that a text may spell: the text, or the unescaped text."""
    yield text.encode("utf-8", "surrogatepass")
    if " " in text:
        # A plus that was not percent-encoded reads as a blank in queries and forms.
        yield text.replace(" ", "+").encode("utf-8", "surrogatepass")
    decoded = text
    for _ in range(_MOST_ENCODED):
        if "%" not in decoded:
            break
        decoded = unquote(decoded)
        yield decoded.encode("utf-8", "surrogatepass")
    if "\\" in text:
        with suppress(ValueError):
            yield str(json.loads(f'"{text}"')).encode("utf-8", "surrogatepass")
    if _HEX.fullmatch(text):
        yield bytes.fromhex(text)
    if "&" in text and (unescaped := html.unescape(text)) != text:
        yield unescaped.encode("utf-8", "surrogatepass")
    escaped = json.dumps(text)[1:-1]
    if escaped != text:
        yield escaped.encode()
