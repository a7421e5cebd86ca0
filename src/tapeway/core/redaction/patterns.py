"""Recognises secrets by their pattern, in any place; and the prefilter.

A pattern must be so long and so unusual that neither prose, nor an identifier of an API, nor base64
matches it: `task-management-for-everyone`, `toolu_…` and images are left alone. In URLs, signed
links, parameters with the name of a key, and passwords count too. Prose has such URLs as well, so
only a value that looks like a key is a secret: `?api_key=YOUR_KEY` is not.

Nearly no text contains a secret, so the prefilter is what redaction costs: a single pass of RE2's
automaton, some 1.6 µs for each KiB, for all patterns, all names of fields and all known values.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import re2  # type: ignore[import-untyped]

from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.opaque import is_opaque, is_stand_in
from tapeway.core.redaction.secret_names import NAME_CANDIDATE
from tapeway.core.redaction.spans import PLACEHOLDER, Span

MAX_LENGTH = 32 * 1024
"""No pattern matches more than this."""

# Words have letters only; where a name could be one, a digit is asked for.
_DIGIT = "(?=[A-Za-z_]{0,40}[0-9])"
_PEM_ENDS = r"-----(?:{})(?: |\+|%20)(?:[A-Z0-9]+(?: |\+|%20)){{0,3}}PRIVATE(?: |\+|%20)KEY(?:(?: |\+|%20)BLOCK)?-----"
_PEM_LINES = r"(?:[A-Za-z0-9+/=\s]|\\+[nr/]|%[0-9A-Fa-f]{2})"

# Label, how it begins (for RE2, which finds candidates), and all of it.
_PATTERNS: tuple[tuple[str, str, str], ...] = (
    ("anthropic-key", "sk-ant-[A-Za-z0-9_-]{16}", "sk-ant-[A-Za-z0-9_-]{16,512}"),
    (
        "openai-key",
        "sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16}",
        "sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,512}",
    ),
    (
        "sk-key",
        "sk-(?:[A-Za-z0-9]{1,12}-){0,3}[A-Za-z0-9_]{16}",
        f"sk-(?:[A-Za-z0-9]{{1,12}}-){{0,3}}{_DIGIT}[A-Za-z0-9_]{{16}}[A-Za-z0-9_-]{{0,512}}",
    ),
    (
        "stripe-key",
        "[sr]k_(?:live|test)_[A-Za-z0-9]{16}",
        "[sr]k_(?:live|test)_[A-Za-z0-9]{16,256}",
    ),
    ("google-key", "AIza[A-Za-z0-9_-]{35}", "AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("google-token", r"ya29\.[A-Za-z0-9_-]{16}", r"ya29\.[A-Za-z0-9._-]{16,2048}"),
    ("google-secret", "GOCSPX-[A-Za-z0-9_-]{20}", "GOCSPX-[A-Za-z0-9_-]{20,64}"),
    (
        "provider-key",
        "(?:gsk|ek|hf|r8|fw|npm|jina|pcsk|key)_[A-Za-z0-9_]{20}",
        f"(?:gsk|ek|hf|r8|fw|npm|jina|pcsk)_{_DIGIT}[A-Za-z0-9]{{20}}[A-Za-z0-9_]{{0,256}}",
    ),
    (
        "provider-key",
        "(?:xai|pplx|tvly|csk|nvapi|glpat|pypi)-[A-Za-z0-9_-]{20}",
        f"(?:xai|pplx|tvly|csk|nvapi|glpat|pypi)-{_DIGIT}[A-Za-z0-9_-]{{20,512}}",
    ),
    ("together-key", "tgp_v1_[A-Za-z0-9_-]{20}", "tgp_v1_[A-Za-z0-9_-]{20,256}"),
    ("langsmith-key", "lsv2_(?:pt|sk)_[0-9a-f]{32}", "lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("aws-key-id", "(?:AKIA|ASIA)[A-Z0-9]{16}", "(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9_-])"),
    ("github-token", "gh[pousr]_[A-Za-z0-9]{20}", "gh[pousr]_[A-Za-z0-9]{20,255}"),
    ("github-token", "github_pat_[A-Za-z0-9_]{22}", "github_pat_[A-Za-z0-9_]{22,255}"),
    (
        "slack-token",
        "(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10}",
        "(?:xox[abeprs]|xapp)-(?=[A-Za-z-]{0,20}[0-9])[A-Za-z0-9-]{10,255}",
    ),
    (
        "sendgrid-key",
        r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}",
        r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
    ),
    ("vault-token", r"hv[bs]\.[A-Za-z0-9_-]{20}", rf"hv[bs]\.{_DIGIT}[A-Za-z0-9_-]{{20,512}}"),
    (
        "jwt",
        r"eyJ[A-Za-z0-9_-]{8}",
        r"eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,16384}\.[A-Za-z0-9_-]{8,4096}",
    ),
    (
        "private-key",
        _PEM_ENDS.format("BEGIN"),
        # To its end, or as far as it was pasted; never beyond the string it is in.
        rf'{_PEM_ENDS.format("BEGIN")}(?:(?:[^"-]|-(?!----)){{16,16384}}{_PEM_ENDS.format("END")}'
        rf"|{_PEM_LINES}{{64,16384}})",
    ),
)

LABELS = frozenset([label for label, _, _ in _PATTERNS])
"""What the patterns are called in placeholders and reports."""

# After a letter it is the end of a word, unless that letter belongs to an escape.
_BEFORE = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
_CANDIDATE_BEFORE = r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})"
_BEGINNINGS = "|".join([begins for _, begins, _ in _PATTERNS])
_EXACT = [(label, re.compile(f"{_BEFORE}{exact}".encode())) for label, _, exact in _PATTERNS]
_PLACEHOLDER_START = b"REDACTED."
_LONGEST_ESCAPE = 6

_PARAMETER_NAMES = "|".join(
    [
        "(?:access|auth|id|private|refresh)_token",
        "api[-_]?key",
        "client_secret",
        "sig(?:nature)?",
        "subscription-key",
        "upload_id",
        "x-amz-(?:security-token|signature)",
        "x-goog-signature",
    ]
)
_LOGIN = r"[A-Za-z]://[^/?#\s:@\"'<>\\]{0,64}:"
_URL_CANDIDATE = rf"(?i:(?:[?&]|\\u0026|&amp;)(?:{_PARAMETER_NAMES})=)|{_LOGIN}"
_PARAMETER_VALUE = re.compile(rb"""[^&?#\s"'<>\\,;)\]}]{16,4096}""")
_PASSWORD = re.compile(rb"""([^/?#\s"'<>\\`]{1,256})@(?=[\w\[])""")
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

_MAX_AUTOMATON = 64 * 1024 * 1024


class Prefilter(Protocol):
    """Finds the first place that may contain a secret."""

    def search(self, text: bytes) -> object | None: ...


@lru_cache(maxsize=64)
def secret_prefilter(constant_parts: tuple[bytes, ...]) -> Prefilter:
    """The prefilter for these parts of known values, every pattern, and every name of a secret.

    It takes a millisecond to compile, so use it for values that are the same for many texts.
    """
    candidates = (f"{_CANDIDATE_BEFORE}(?:{_BEGINNINGS})", NAME_CANDIDATE, _URL_CANDIDATE)
    return _prefilter(*[each.encode() for each in candidates], *map(re.escape, constant_parts))


@lru_cache(maxsize=64)
def value_prefilter(constant_parts: tuple[bytes, ...]) -> Prefilter:
    """The prefilter for these parts of known values alone."""
    return _prefilter(*map(re.escape, constant_parts))


def find_patterns(data: bytes, start: int = 0) -> Iterator[Span]:
    """Every secret from `start` on that matches a pattern."""
    at = max(0, start - _LONGEST_ESCAPE)
    while (candidate := _pattern_candidates().search(data, at)) is not None:
        begin = candidate.start(1)
        span = _exact_span(data, begin) if begin >= start else None
        if span is not None:
            yield span
        at = max(begin + 1, span.end if span else 0)


def find_url_credentials(data: bytes, start: int = 0) -> Iterator[Span]:
    """Every secret from `start` on in a parameter or the password of a URL."""
    at = start
    while (candidate := _url_candidates().search(data, at)) is not None:
        at = candidate.end()
        name = candidate[1]
        value = (_PARAMETER_VALUE if name else _PASSWORD).match(data, at)
        if value is None:
            continue
        end = value.end() if name else value.end(1)
        secret = unquote_to_bytes(data[at:end])
        user = candidate[0].rpartition(b"/")[2][:-1]
        if PLACEHOLDER.match(data, at) is None and (
            is_opaque(secret) if name else _is_password(secret, user)
        ):
            yield Span(at, end, Secret(name.decode().lower() if name else "userinfo", secret))
            at = end


def _is_password(text: bytes, user: bytes) -> bool:
    """Whether this is a password, and not what documentation writes for one."""
    if text == user or text.lower() in _STAND_INS or _VARIABLE.fullmatch(text):
        return False
    return not is_stand_in(text.decode("utf-8", "replace"))


def compile_for_bytes(pattern: bytes, *, max_mem: int | None = None) -> Any:
    """An RE2 pattern that searches octets, in any encoding."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    if max_mem is not None:
        options.max_mem = max_mem
    return re2.compile(pattern, options)


def _prefilter(*patterns: bytes) -> Prefilter:
    found: Prefilter = compile_for_bytes(b"|".join(patterns), max_mem=_MAX_AUTOMATON)
    return found


@cache
def _pattern_candidates() -> Any:
    return compile_for_bytes(f"{_CANDIDATE_BEFORE}({_BEGINNINGS})".encode())


@cache
def _url_candidates() -> Any:
    with_name = _URL_CANDIDATE.replace(f"(?:{_PARAMETER_NAMES})", f"({_PARAMETER_NAMES})")
    return compile_for_bytes(with_name.encode())


def _exact_span(data: bytes, start: int) -> Span | None:
    for label, exact in _EXACT:
        found = exact.match(data, start)
        if found is not None:
            # An adjacent placeholder is not part of it.
            hidden = data.find(_PLACEHOLDER_START, start, found.end() + 1)
            if hidden >= 0:
                found = exact.match(data, start, hidden)
        if found is not None and not is_stand_in(found[0].decode("latin-1")):
            return Span(start, found.end(), Secret(label, found[0]))
    return None
