"""Tells a secret from a name, a word, a sentence, a model, a path, a date or a number.

A secret was drawn at random, so nobody can read it. A value is cut at its punctuation, and those of
its runs of letters and digits count that are neither words nor numbers. Words with a number are
common (`us-central1`, `llama3`, `gpt-4o-mini-2024-07-18`), so a word and a number together count for
nothing either.

Only opaque values are searched for outside the field that names them, and only they are secrets in
responses and inside texts: a word that was replaced there would damage the recording.
"""

import re
from functools import lru_cache
from itertools import pairwise

MIN_VALUE = 12
"""Shorter values are not opaque: too many of them are words by chance."""

# So many characters that are not readable make a value opaque.
_MIN_UNREADABLE = 7
# Neither a date, nor a version's number, nor a port. Alone the match is just a number.
_MIN_DIGITS = 9
_MIN_WORD = 6
_MIN_KEY = 20
_MIN_DISTINCT = 8
# Tokens in base64 have signs at random, and so shorter parts.
_MIN_PART = 4
_MIN_CERTAIN = 0.72
_MIXED = r"(?=.*[a-z])(?=.*[A-Z])"
_PADDED = re.compile(_MIXED + r"[A-Za-z0-9+/]+={1,2}")
_BASE64 = re.compile(_MIXED + r"(?=.*[0-9])(?:[A-Za-z0-9+/]+|[A-Za-z0-9_-]+)={0,2}")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_MIN_CASE_WORD = 2.4
_MIN_COMMON = 0.62

_BLANK = re.compile(r"[\x00-\x20\x7f]")
_TEMPLATE = re.compile(
    r"\$\{|\{\{|\$\(|\*{3}|\.{3}|…|[xX]{6}|0{10}"
    r"|(?i:example|placeholder|changeme|redacted|(?:^|[-_<])your?[-_])"
)
_IN_BRACKETS = re.compile(r"<.*>|\{.*\}|\[.*\]|%.*%")
_SHELL_VARIABLE = re.compile(r"\$[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}://|arn:|urn:|ft:")
_RUN = re.compile(r"[^\W_]+")
_GROUP = re.compile(r"[0-9]+|[^0-9]+")
_CASE_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_UNUSUAL = frozenset("!#$^*~")
_SYMBOLS = frozenset("!#$^*~%&?;|\\<>()[]{}\"'`@")
_MIN_SYMBOLS = 3
_PATH = re.compile(r"[^+=]*/[^+=]*/[^+=]*")
_DATE = re.compile(r"(?:19|20)[0-9]{6}(?:[0-9]{6})?")

# A word, a number or both: `4o`, `70B`, `v1`, `8x7b`, `gemma3n`, `ed25519`, `20241022T101112Z`
_WORD_AND_NUMBER = re.compile(
    r"[A-Za-z]+[0-9]{1,6}[A-Za-z]?|v[0-9]+(?:alpha|beta|p)[0-9]*|[A-Za-z]?[0-9]{1,5}[A-Za-z]{1,2}|[0-9]{1,2}x[0-9]{1,3}b"
    r"|[0-9]{8}T[0-9]{4,6}Z?|[A-Za-z]+(?:19|20)[0-9]{6}"
)

_FOLLOWING = {
    "a": "bcdgiklmnprstuvwxy",
    "b": "aceilorsuy",
    "c": "acdehiklmorstu",
    "d": "abcdefilorstu",
    "e": "abcdefgilmnopqrstvwxy",
    "f": "aefilorstu",
    "g": "aehilnorsu",
    "h": "aeiort",
    "i": "abcdefglmnoprstvxz",
    "j": "aou",
    "k": "aeis",
    "l": "acdeilopstuy",
    "m": "abeilmopsu",
    "n": "acdefgiklmnoprstuv",
    "o": "abcdfgiklmnoprstuvw",
    "p": "acdehiloprstuy",
    "q": "u",
    "r": "abcdefgiklmnoprstuvy",
    "s": "acdefhiklmnoprstuwy",
    "t": "abcdefhilmnoprstuy",
    "u": "abcdefilmnprst",
    "v": "aei",
    "w": "aeior",
    "x": "ept",
    "y": "npst",
    "z": "e",
}
"""The letters that often follow each letter in the words of programs and their documentation."""


@lru_cache(maxsize=2048)
def is_opaque(value: bytes) -> bool:
    """Whether a value is one string of 12 characters or more that nobody can read."""
    if len(value) < MIN_VALUE:
        return False
    text = value.decode("utf-8", "replace")
    if _BLANK.search(text) or _RESOURCE.match(text) or is_stand_in(text):
        return False
    runs = _RUN.findall(text)
    if sum([len(run) for run in runs if not _is_readable(run)]) >= _MIN_UNREADABLE:
        return True
    if all(map(str.isdigit, runs)):
        return False
    symbols = _SYMBOLS.intersection(text)
    if len(symbols) >= _MIN_SYMBOLS or (symbols & _UNUSUAL and not all(map(str.isalpha, runs))):
        # A password: words with signs between them.
        return True
    # In a path a number is that of a project or of a user.
    return _PATH.fullmatch(text) is None and any(map(_is_long_number, runs))


def has_key_form(value: bytes) -> bool:
    """Whether a value under a name that also means other things has the form of a key.

    A key has 20 characters or more. Between its separators no part is a word, a number or a date,
    so the name of an object, its path and its number are no keys.
    """
    text = value.decode("utf-8", "replace")
    if len(text) < _MIN_KEY or _BLANK.search(text) or _RESOURCE.match(text) or is_stand_in(text):
        return False
    if _UUID.fullmatch(text) or len({*text}) < _MIN_DISTINCT:
        return False
    if _PADDED.fullmatch(text) and len(text) % 4 == 0:
        # The signs of base64 separate nothing.
        return not _is_plain("".join(_RUN.findall(text)))
    parts = _RUN.findall(text)
    if _BASE64.fullmatch(text):
        numbers = [part for part in parts if part.isdigit()] if "/" in text else []
        parts = [*numbers, *[part for part in parts if len(part) >= _MIN_PART]]
    return bool(parts) and not any(map(_is_plain, parts))


def is_stand_in(text: str) -> bool:
    """Whether this is what documentation writes in place of a secret: `sk-xxxxxxxx`, `YOUR_KEY`."""
    return (
        _TEMPLATE.search(text) is not None
        or _IN_BRACKETS.fullmatch(text) is not None
        or _SHELL_VARIABLE.fullmatch(text) is not None
    )


def _is_long_number(run: str) -> bool:
    return run.isdigit() and len(run) >= _MIN_DIGITS and _DATE.fullmatch(run) is None


def _is_readable(run: str) -> bool:
    """Whether a run is a number, a word, or a word and a number."""
    if not (run.isalpha() or run.isdigit() or _WORD_AND_NUMBER.fullmatch(run)):
        return False
    return all(map(_is_word, _GROUP.findall(run)))


def _is_plain(part: str) -> bool:
    """Whether a part of a value is a word, a number, a date, or mostly made of words."""
    if _is_readable(part):
        return not _changes_case(part)
    groups = [group for group in _GROUP.findall(part) if len(group) >= _MIN_PART]
    words = [group for group in groups if group.isalpha() and _reads_well(group, _MIN_CERTAIN)]
    return 2 * sum(map(len, words)) >= len(part)


def _changes_case(part: str) -> bool:
    """Whether a part changes its case sooner than the words of a name do."""
    words = _CASE_WORD.findall(part)
    return len(words) > 1 and len(part) < _MIN_CASE_WORD * len(words)


def _is_word(letters: str) -> bool:
    if len(letters) < _MIN_WORD or letters.isdigit() or not letters.isascii():
        return True
    return _reads_well(letters)


def _reads_well(letters: str, least: float = _MIN_COMMON) -> bool:
    """Whether letters look like words, judged by case and by pairs of neighbours."""
    words = _CASE_WORD.findall(letters)
    if len(letters) < _MIN_CASE_WORD * len(words):
        # Letters drawn at random change their case sooner than the words of a name.
        return False
    pairs = [pair for word in words for pair in pairwise(word.lower())]
    common = sum([following in _FOLLOWING[letter] for letter, following in pairs])
    return common >= least * len(pairs)
