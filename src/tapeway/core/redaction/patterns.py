"""Recognises secrets by their pattern, in any place; and the prefilter.

The forms of keys are in key_patterns.py. In URLs, signed links, parameters with the name of a key,
and passwords count too. Prose has such URLs as well, so only an opaque value is a secret:
`?api_key=YOUR_KEY` is not.

Nearly no text contains a secret, so the prefilter is what redaction costs: a single pass of RE2's
automaton, some 1.6 µs for each KiB, for all patterns, all names of fields and all known values.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from tapeway.core.automata import Prefilter, compile_for_bytes, prefilter, re2_module
from tapeway.core.redaction.assignments import (
    CANDIDATE,
    LONGEST_CONTEXT,
    find_assigned,
    is_password,
    span_of,
)
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.key_patterns import KEY_PATTERNS, KeyPattern
from tapeway.core.redaction.opaque import is_opaque, is_stand_in
from tapeway.core.redaction.secret_names import (
    LINK_NAMES,
    NAME_CANDIDATE,
)
from tapeway.core.redaction.spans import PLACEHOLDER, Span

MAX_LENGTH = 32 * 1024
"""No pattern matches more than this."""

# After a letter it is the end of a word, unless that letter belongs to an escape.
_BEFORE = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
_CANDIDATE_BEFORE = r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})"
_BEGINNINGS = "|".join(
    [key_pattern.begins for key_pattern in KEY_PATTERNS if not key_pattern.before]
)
_ANCHORS = "|".join([key_pattern.begins for key_pattern in KEY_PATTERNS if key_pattern.before])
_LONGEST_BEGINNING = 160
_PLACEHOLDER_START = b"REDACTED."

_LOGIN = r"[A-Za-z]://[^/?#\s:@\"'<>\\]{0,64}:"
_USER_ALONE = r"[A-Za-z]://[A-Za-z0-9_.~+-]{12,256}@"
_URL_CANDIDATE = rf"(?i:(?:[?&]|\\u0026|&amp;)(?:{LINK_NAMES})=)|{_LOGIN}|{_USER_ALONE}"
# A control character ends a value too: in a binary message what follows is a length.
_PARAMETER_VALUE = re.compile(rb"""[^&?#\x00-\x20\x7f"'<>\\,;)\]}]{16,4096}""")
_PASSWORD = re.compile(rb"""([^/?#\x00-\x20\x7f"'<>\\`]{1,256})@(?=[\w\[])""")


@lru_cache(maxsize=64)
def secret_prefilter(constant_parts: tuple[bytes, ...]) -> Prefilter:
    """The prefilter for the given parts of known values, all patterns, and all names of secrets.

    Compiling takes a millisecond: use a prefilter only for values shared by many texts.
    """
    beginnings = (f"{_CANDIDATE_BEFORE}(?:{_BEGINNINGS})", _ANCHORS)
    candidates = (*beginnings, NAME_CANDIDATE, CANDIDATE, _URL_CANDIDATE)
    return prefilter(
        *[candidate.encode() for candidate in candidates], *map(re.escape, constant_parts)
    )


@lru_cache(maxsize=64)
def value_prefilter(constant_parts: tuple[bytes, ...]) -> Prefilter:
    """The prefilter for these parts of known values alone."""
    return prefilter(*map(re.escape, constant_parts))


def find_in_text(data: bytes, start: int = 0) -> Iterator[Span]:
    """Every secret from `start` on that can be recognised in any text."""
    yield from find_patterns(data, start)
    yield from find_url_credentials(data, start)
    yield from find_assigned(data, start)


def find_patterns(data: bytes, start: int = 0) -> Iterator[Span]:
    """Every secret from `start` on that matches a pattern."""
    at = max(0, start - LONGEST_CONTEXT)
    while (candidate := _pattern_candidates().search(data, at)) is not None:
        begin = max(candidate.start(1), candidate.start(2))
        span = _exact_span(data, begin, anchored=candidate.start(2) >= 0)
        if span is not None and span.start >= start:
            yield span
        at = max(begin + 1, span.end if span else 0)


def is_known_key(value: bytes) -> bool:
    """Whether all of a value is a key of a known form."""
    return any((span.start, span.end) == (0, len(value)) for span in find_patterns(value))


def find_url_credentials(data: bytes, start: int) -> Iterator[Span]:
    """Every secret from `start` on in a parameter or the password of a URL."""
    at = max(0, start - LONGEST_CONTEXT)
    while (candidate := _url_candidates().search(data, at)) is not None:
        at = candidate.end()
        if candidate[0].endswith(b"@"):
            # Some services take a token as the user, without a password.
            begin = candidate.start() + candidate[0].index(b"//") + 2
            if begin >= start and is_opaque(token := data[begin : at - 1]):
                yield Span(begin, at - 1, Secret("userinfo", token))
            continue
        name = candidate[1]
        value = (_PARAMETER_VALUE if name else _PASSWORD).match(data, at)
        if value is None:
            continue
        end = value.end() if name else value.end(1)
        secret = unquote_to_bytes(data[at:end])
        user = candidate[0].rpartition(b"/")[2][:-1]
        if (
            at >= start
            and PLACEHOLDER.match(data, at) is None
            and (is_opaque(secret) if name else is_password(secret, user))
        ):
            label = name.decode().lower() if name else "userinfo"
            span = span_of(label, data[at:end], end)
            yield replace(span, secret=Secret(label, unquote_to_bytes(data[span.start : end])))
            at = end


@cache
def _pattern_candidates() -> Any:
    return compile_for_bytes(f"{_CANDIDATE_BEFORE}({_BEGINNINGS})|({_ANCHORS})".encode())


@cache
def _beginnings() -> Any:
    """Tells which patterns a text may begin with."""
    re2 = re2_module()
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    match_set = re2.Set.MatchSet(options)
    for pattern in KEY_PATTERNS:
        match_set.Add(pattern.begins.encode())
    match_set.Compile()
    return match_set


@cache
def _url_candidates() -> Any:
    with_name = _URL_CANDIDATE.replace(f"(?:{LINK_NAMES})", f"({LINK_NAMES})")
    return compile_for_bytes(with_name.encode())


@cache
def _exact(number: int) -> re.Pattern[bytes]:
    # When it is needed: few of them ever are, and making all takes a twentieth of a start.
    return re.compile(f"{_BEFORE}(?:{KEY_PATTERNS[number].whole})".encode())


def _exact_span(data: bytes, begin: int, *, anchored: bool) -> Span | None:
    """The secret whose beginning, or anchor, is at `begin`."""
    for number in sorted(_beginnings().Match(data[begin : begin + _LONGEST_BEGINNING])):
        pattern, exact = KEY_PATTERNS[number], _exact(number)
        if anchored != (pattern.before > 0):
            continue
        at = begin - pattern.before
        match = exact.match(data, at) if at >= 0 else None
        if match is not None:
            # An adjacent placeholder is not part of it.
            hidden = data.find(_PLACEHOLDER_START, at, match.end() + 1)
            if hidden >= 0:
                match = exact.match(data, at, hidden)
        if match is not None and _is_key(pattern, match[0]):
            group = 1 if match.lastindex else 0
            return Span(match.start(group), match.end(group), Secret(pattern.label, match[group]))
    return None


def _is_key(pattern: KeyPattern, text: bytes) -> bool:
    if pattern.may_be_words:
        return is_opaque(text)
    return not is_stand_in(text.decode("latin-1"))
