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

from tapeway.core.redaction.credentials import ID_AND_SECRET, Secret
from tapeway.core.redaction.key_patterns import KEY_PATTERNS, KeyPattern
from tapeway.core.redaction.opaque import is_opaque, is_stand_in
from tapeway.core.redaction.secret_names import (
    LINK_NAMES,
    NAME_ASSIGNED,
    NAME_CANDIDATE,
    NAME_SPACED,
    YAML_BLOCK,
    name_kind,
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
LONGEST_CONTEXT = 512
"""How far before a secret what tells of it may begin: a name, a path, `curl`."""

_LOGIN = r"[A-Za-z]://[^/?#\s:@\"'<>\\]{0,64}:"
_USER_ALONE = r"[A-Za-z]://[A-Za-z0-9_.~+-]{12,256}@"
_URL_CANDIDATE = rf"(?i:(?:[?&]|\\u0026|&amp;)(?:{LINK_NAMES})=)|{_LOGIN}|{_USER_ALONE}"
# A control character ends a value too: in a binary message what follows is a length.
_PARAMETER_VALUE = re.compile(rb"""[^&?#\x00-\x20\x7f"'<>\\,;)\]}]{16,4096}""")
_PASSWORD = re.compile(rb"""([^/?#\x00-\x20\x7f"'<>\\`]{1,256})@(?=[\w\[])""")
# What documentation writes for a password.
_STAND_INS = frozenset(
    {
        b"",
        b"pass",
        b"passwd",
        b"password",
        b"pw",
        b"pwd",
        b"secret",
        b"mypassword",
        b"xxx",
        b"token",
    }
)
_VARIABLE = re.compile(rb"[$%{<*:].*|[A-Z_]+", re.DOTALL)

# `api_key = "…"`, `export HF_TOKEN=…`, `-H "Authorization: Bearer …"`, `Password=…;`
_NAME_BEFORE = re.compile(rb"[A-Za-z0-9_.-]{0,60}\Z")
_ASSIGNED_VALUE = (
    rb"""[^\x00-\x20\x7f"'<>{}()\[\],;&\\=]{1,2048}"""
    rb"""(?:\\/[^\x00-\x20\x7f"'<>{}()\[\],;&\\=]{1,2048}){0,8}={0,2}"""
)
_ASSIGNMENT = re.compile(
    rb"""[A-Za-z0-9_. -]{1,80}?['"\\]{0,6}[ \t]{0,3}(?::=|=>|=|:)[ \t]{0,3}(?:%b)?"""
    rb"""(?:(?i:bearer|basic|token) )?['"\\]{0,6}(%b)""" % (YAML_BLOCK.encode(), _ASSIGNED_VALUE)
)
_SPACED = re.compile(rb"""([A-Za-z0-9_-]+) {1,3}['"\\]{0,6}(%b)""" % _ASSIGNED_VALUE)
_SPACED_NAME = re.compile(rb"""[A-Za-z0-9_-]+(?= {1,3}['"\\]{0,6}[^\s'"\\]{6}\Z)""")
# `request.form.password`, in code.
_ATTRIBUTE = re.compile(rb"[A-Za-z_]\w*(?:\.\w+)*")
# `base64.b64encode(data)`, in code.
_CALL = re.compile(rb"[A-Za-z_]\w*(?:[._]\w+)+(?=\([^()]{0,200}[()])")
_LOGIN_OPTION = r"""(?:-u|--user|--proxy-user)(?:[ =]|%20|\+)?['"\\]{0,6}[A-Za-z0-9_.@-]{1,64}:"""
_LOGIN_PASSWORD = re.compile(rb"""[^\x00-\x20\x7f"'<>\\`]{1,256}""")
_USER = re.compile(rb"[A-Za-z0-9_.@-]{1,64}\Z")
_LOGIN_COMMAND = 300
"""How far before its option `curl` may be."""

_NO_SPAN = (-1, -1)
_MAX_AUTOMATON = 64 * 1024 * 1024


class Prefilter:
    """Tells whether a text may contain anything, by an RE2 pattern.

    Without the generator and the match that `search` of the pattern makes: they take longer than to
    search a small text.
    """

    __slots__ = ("_anywhere", "_spans", "pattern")

    def __init__(self, compiled: Any) -> None:
        self.pattern: bytes = compiled.pattern
        regexp = compiled._regexp
        self._spans = regexp.Match
        self._anywhere = type(regexp).Anchor.UNANCHORED

    def search(self, text: bytes) -> bool:
        """Whether the pattern matches anywhere."""
        return bool(self._spans(self._anywhere, text, 0, len(text))[0] != _NO_SPAN)


@lru_cache(maxsize=64)
def secret_prefilter(constant_parts: tuple[bytes, ...]) -> Prefilter:
    """The prefilter for the given parts of known values, all patterns, and all names of secrets.

    Compiling takes a millisecond: use a prefilter only for values shared by many texts.
    """
    beginnings = (f"{_CANDIDATE_BEFORE}(?:{_BEGINNINGS})", _ANCHORS)
    names = (NAME_CANDIDATE, NAME_ASSIGNED, NAME_SPACED, f"[ \"'\\\\]{_LOGIN_OPTION}")
    candidates = (*beginnings, *names, _URL_CANDIDATE)
    return _prefilter(
        *[candidate.encode() for candidate in candidates], *map(re.escape, constant_parts)
    )


@lru_cache(maxsize=64)
def value_prefilter(constant_parts: tuple[bytes, ...]) -> Prefilter:
    """The prefilter for these parts of known values alone."""
    return _prefilter(*map(re.escape, constant_parts))


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
            and (is_opaque(secret) if name else _is_password(secret, user))
        ):
            label = name.decode().lower() if name else "userinfo"
            span = _span_of(label, data[at:end], end)
            yield replace(span, secret=Secret(label, unquote_to_bytes(data[span.start : end])))
            at = end


def find_assigned(data: bytes, start: int) -> Iterator[Span]:
    """Every secret from `start` on that prose or code gives to the name of one.

    Only opaque values, but for the passwords of connection strings and of curl.
    """
    at = max(0, start - LONGEST_CONTEXT)
    while (candidate := _assigned_candidates().search(data, at)) is not None:
        if candidate.start(1) >= 0:
            at = candidate.end()
            span = _login_span(data, candidate.start(1), at)
        elif candidate.start(2) >= 0:
            at = candidate.end() - 1
            span = _spaced_span(data, candidate.start(2), candidate.end())
        else:
            at = candidate.end() - 1
            span = _assigned_span(data, candidate.start())
        if span is not None and span.start >= start and PLACEHOLDER.match(data, span.start) is None:
            yield span
            at = max(at, span.end)


def _assigned_span(data: bytes, begin: int) -> Span | None:
    before = _NAME_BEFORE.search(data, max(0, begin - 60), begin)
    first = before.start() if before is not None else begin
    match = _ASSIGNMENT.match(data, begin)
    if match is None:
        return None
    name = (
        re.split(rb"[^\w. -]", data[first : match.start(1)], maxsplit=1)[0]
        .strip()
        .decode("latin-1")
    )
    value = match[1].rstrip(b".:")
    if data.endswith(b"\\", 0, first) and not name_kind(name):
        # The first letter belongs to an escape, such as `\n`.
        name = name[1:]
    kind = name_kind(name)
    if kind in ("", "generic") or _is_call(data, *match.span(1)):
        return None
    # In a connection string any value is one: `Server=db;Password=hunter2;`
    between = data.startswith(b";", match.end(1)) or data.endswith(b";", 0, first)
    if not is_opaque(value) and not (between and _is_odd_password(value)):
        return None
    return _span_of(name.lower(), value, match.start(1) + len(value))


def _is_call(data: bytes, start: int, end: int) -> bool:
    call = _CALL.match(data, start)
    return call is not None and call.end() == end


def _spaced_span(data: bytes, begin: int, end: int) -> Span | None:
    """The value behind a blank after an option or a variable."""
    name = _SPACED_NAME.search(data, begin, end)
    match = None if name is None else _SPACED.match(data, name.start())
    if match is None or not is_opaque(value := match[2].rstrip(b".:")):
        return None
    label = match[1].lstrip(b"-").lower().decode()
    return _span_of(label, value, match.start(2) + len(value))


def _span_of(label: str, value: bytes, end: int) -> Span:
    """The span of a value that ends there, or of the secret behind an id in it."""
    tail = ID_AND_SECRET.fullmatch(value)
    secret = value if tail is None else tail[1]
    return Span(end - len(secret), end, Secret(label, secret))


def _login_span(data: bytes, begin: int, at: int) -> Span | None:
    password = _LOGIN_PASSWORD.match(data, at)
    if password is None or b"curl" not in data[max(0, begin - _LOGIN_COMMAND) : begin]:
        return None
    user = _USER.search(data, begin, at - 1)
    if user is None or not _is_password(password[0], user[0]):
        return None
    return Span(at, password.end(), Secret("login", password[0]))


def _is_odd_password(text: bytes) -> bool:
    """Whether this is a password, and no word."""
    if text.isdigit() or (_ATTRIBUTE.fullmatch(text) and (b"." in text or text.isalpha())):
        return False
    return _is_password(text, b"")


def _is_password(text: bytes, user: bytes) -> bool:
    """Whether a text is a password, and not an example from documentation."""
    if text == user or text.lower() in _STAND_INS or _VARIABLE.fullmatch(text):
        return False
    return not is_stand_in(text.decode("utf-8", "replace"))


def _re2() -> Any:
    # Imported when something is searched for: a server that only replays never does.
    import re2  # type: ignore[import-untyped]

    return re2


def compile_for_bytes(pattern: bytes, *, max_mem: int | None = None) -> Any:
    """An RE2 pattern that searches octets, in any encoding."""
    re2 = _re2()
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    if max_mem is not None:
        options.max_mem = max_mem
    return re2.compile(pattern, options)


def _prefilter(*patterns: bytes) -> Prefilter:
    return Prefilter(compile_for_bytes(b"|".join(patterns), max_mem=_MAX_AUTOMATON))


@cache
def _pattern_candidates() -> Any:
    return compile_for_bytes(f"{_CANDIDATE_BEFORE}({_BEGINNINGS})|({_ANCHORS})".encode())


@cache
def _beginnings() -> Any:
    """Tells which patterns a text may begin with."""
    re2 = _re2()
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    match_set = re2.Set.MatchSet(options)
    for pattern in KEY_PATTERNS:
        match_set.Add(pattern.begins.encode())
    match_set.Compile()
    return match_set


@cache
def _assigned_candidates() -> Any:
    return compile_for_bytes(
        f"[ \"'\\\\]({_LOGIN_OPTION})|({NAME_SPACED})|{NAME_ASSIGNED}".encode()
    )


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
