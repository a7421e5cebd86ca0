"""Text and UTF-8: bytes that may not be UTF-8, and strings that cannot be encoded as it.

Python represents octets that it could not decode as lone surrogates (`surrogateescape`), and JSON
can escape such surrogates too. Neither can be written to a document or a terminal unchanged.
"""

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import AnyStr, Literal

_SAMPLE = 64
_ASCII = 128
_LEAST = 4
_CHARSET = re.compile(rb"utf-?16-?(le|be)?", re.IGNORECASE)
_SLICE = 256 * 1024
_OF_TEXTS = bytes([*b"\t\n\f\r\x1b\x1e", *range(0x20, 0x7F), *range(0x80, 0x100)])
"""The octets of texts. Control characters among them are blanks, the escape of terminals, and the
separator of JSON texts.
"""
_ESCAPES = re.compile(r"(?<!\\)(?:\\u[0-9a-fA-F]{4})+")
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Utf16Text:
    """A text in UTF-16, one octet for each unit, searchable like any text.

    A unit beyond Latin-1 is 0xFF in `text`.
    """

    text: bytes
    codec: Literal["utf-16-le", "utf-16-be"]


def read_utf16(data: bytes, content_type: bytes = b"") -> Utf16Text | None:
    """The text, None if the octets are no UTF-16.

    Recognised by its byte order mark, its charset, or by Latin letters, whose other octet is 0.
    """
    if (
        len(data) > 1
        and 0 < data[0] < _ASCII
        and 0 < data[1] < _ASCII
        and content_type.find(b"16") < 0
    ):
        # Nearly every one: ASCII in octets.
        return None
    mark = data[:2]
    # `find`, since `in` makes an error message, and forgets it, before it searches bytes for bytes.
    if mark.find(0) < 0 and mark not in _MARKS and content_type.find(b"16") < 0:
        return None
    if (codec := _utf16_codec(data, content_type)) is None:
        return None
    low, high = (data[::2], data[1::2]) if codec == "utf-16-le" else (data[1::2], data[::2])
    if any(high):
        low = bytes([0xFF if upper else lower for lower, upper in zip(low, high, strict=False)])
    return Utf16Text(low, codec)


def _utf16_codec(data: bytes, content_type: bytes) -> Literal["utf-16-le", "utf-16-be"] | None:
    if data.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if data.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    if (charset := _CHARSET.search(content_type)) is not None:
        return "utf-16-le" if (charset[1] or b"").lower() == b"le" else "utf-16-be"
    sample = data[:_SAMPLE]
    if len(sample) < _LEAST:
        return None
    if sample[1:2] == b"\0" and not any(sample[1::2]) and all(sample[::2]):
        return "utf-16-le"
    if sample[:1] == b"\0" and not any(sample[::2]) and all(sample[1::2]):
        return "utf-16-be"
    return None


def decode_utf8(data: bytes) -> str | None:
    """The text, or None where the bytes are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def has_controls(octets: bytes) -> bool:
    """Whether there are control characters that no text has."""
    # Some protocols end a text with NUL.
    return bool(octets.rstrip(b"\0").translate(None, _OF_TEXTS))


def is_utf8(text: bytes | str) -> bool:
    """Whether the bytes are UTF-8, or the string can be written as it: a lone surrogate cannot."""
    if isinstance(text, bytes):
        return decode_utf8(text) is not None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def escape_surrogates(text: str) -> str:
    """The text with each lone surrogate written as an escape, `\\udcff`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def escape_unprintable(text: str) -> str:
    """The text on one line, with unprintable characters escaped: they could steer a terminal."""
    return "".join(
        [character if character.isprintable() else f"\\u{ord(character):04x}" for character in text]
    )


def escape_octets(text: str) -> str:
    """The text with each octet that could not be decoded written as an escape, `\\xff`.

    Raises UnicodeEncodeError for any other lone surrogate.
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def occurs(
    pattern: re.Pattern[AnyStr], text: AnyStr, longest: int, *, at_once: int = _SLICE
) -> bool:
    """Whether a pattern matches anywhere in a text; its matches have at most `longest` units.

    The text is searched in slices, which overlap by that much: no other thread runs while an
    expression searches, and 50 MiB take 20 ms.
    """
    starts = range(0, len(text), at_once)
    return any(pattern.search(text, start, start + at_once + longest) for start in starts)


def no_pause() -> None:
    """The pause of work that no other thread waits for."""


def nearest_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that look most like a name, the nearest first; for one that was mistyped."""
    # Imported here: nearly no start of a program meets a wrong name.
    from difflib import get_close_matches

    return get_close_matches(name, [*known], most)


def readable_json(text: str) -> str:
    """A text of JSON for a list: what the text writes as escapes is shown as the characters."""
    if "\\u" not in text or text.lstrip()[:1] not in ("{", "[", '"'):
        return text
    return _ESCAPES.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    units = bytes.fromhex(match[0].replace("\\u", ""))
    # What nobody would see, as the half of a pair, stays an escape.
    characters = units.decode("utf-16-be", "replace")
    printable = characters.isprintable() and "\ufffd" not in characters
    return characters if printable else match[0]
