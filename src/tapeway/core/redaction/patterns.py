"""Secrets that can be told by how they look, whatever place they stand in.

A shape has to be so long and so odd that neither prose, nor an identifier of an API, nor base64
has it: `task-management-for-everyone`, `toolu_…` and pictures stay as they are.

Credentials in URLs that stand in a text: signed links, parameters named like a key, passwords.

Prose has such URLs too, so only what looks like a key counts: `?api_key=YOUR_KEY` does not.

One fast look that tells whether a text may hold any secret at all.

Nearly none does, so this is what redaction costs: a single pass of RE2's automaton over the text,
some 1.6 µs for each KiB, for all shapes, all names of fields and all values that stay the same.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import re2  # type: ignore[import-untyped]

from tapeway.core.redaction import secret_names
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.secret_names import KEY_LIKE
from tapeway.core.redaction.spans import PLACEHOLDER, Span

MAX_LENGTH = 32 * 1024
"""No shape is longer than this."""

# Words have letters only; where a name could be one, a digit is asked for.
_DIGIT = "(?=[A-Za-z_]{0,40}[0-9])"
_PEM_ENDS = r"-----(?:{})(?: |\+|%20)(?:[A-Z0-9]+(?: |\+|%20)){{0,3}}PRIVATE(?: |\+|%20)KEY(?:(?: |\+|%20)BLOCK)?-----"
_PEM_LINES = r"(?:[A-Za-z0-9+/=\s]|\\+[nr/]|%[0-9A-Fa-f]{2})"

# Label, how it begins (for RE2, which finds candidates), and what it is.
_SHAPES: tuple[tuple[str, str, str], ...] = (
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
        # To its end, or as far as it was pasted; never beyond the string it stands in.
        rf'{_PEM_ENDS.format("BEGIN")}(?:(?:[^"-]|-(?!----)){{16,16384}}{_PEM_ENDS.format("END")}'
        rf"|{_PEM_LINES}{{64,16384}})",
    ),
)

LABELS = frozenset([label for label, _, _ in _SHAPES])
"""What the shapes are called in placeholders and reports."""

# A letter before it makes it the end of a word, unless that belongs to an escape.
_BEFORE = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
_CANDIDATE_BEFORE = r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})"

PATTERN_CANDIDATE = f"{_CANDIDATE_BEFORE}(?:{'|'.join([begins for _, begins, _ in _SHAPES])})"
"""Where a shape may begin, in RE2's syntax: a single search for whoever asks for more than shapes."""
_EXACT = [(label, re.compile(f"{_BEFORE}{exact}".encode())) for label, _, exact in _SHAPES]
_HIDDEN = b"REDACTED."
_LONGEST_ESCAPE = 6
_NAMES = "|".join(
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
_PARAMETER = rf"(?i:(?:[?&]|\\u0026|&amp;)({_NAMES})=)"
_LOGIN = r"[A-Za-z]://[^/?#\s:@\"'<>\\]{0,64}:"

URL_CANDIDATE = f"{_PARAMETER}|{_LOGIN}".replace(f"({_NAMES})", f"(?:{_NAMES})")
"""Where one may stand, in RE2's syntax: a single search for whoever asks for more."""

_VALUE = re.compile(rb"""[^&?#\s"'<>\\,;)\]}]{16,4096}""")

_PASSWORD = re.compile(rb"""(?=[^@]{0,256}[0-9])([^/?#\s@"'<>\\]{12,256})@""")
_MAX_AUTOMATON = 64 * 1024 * 1024


def find_patterns(data: bytes, start: int = 0) -> Iterator[Span]:
    """Every secret from `start` on that its shape gives away."""
    at = max(0, start - _LONGEST_ESCAPE)
    while (candidate := _shape_candidates().search(data, at)) is not None:
        begin = candidate.start(1)
        span = _confirmed(data, begin) if begin >= start else None
        if span is not None:
            yield span
        at = max(begin + 1, span.end if span else 0)


@cache
def _shape_candidates() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    begins = "|".join([begins for _, begins, _ in _SHAPES])
    return re2.compile(f"{_CANDIDATE_BEFORE}({begins})".encode(), options)


def _confirmed(data: bytes, start: int) -> Span | None:
    for label, exact in _EXACT:
        found = exact.match(data, start)
        if found is not None:
            # A placeholder next to it is no part of it.
            hidden = data.find(_HIDDEN, start, found.end() + 1)
            if hidden >= 0:
                found = exact.match(data, start, hidden)
        if found is not None:
            return Span(start, found.end(), Secret(label, found[0]))
    return None


def find_url_credentials(data: bytes, start: int = 0) -> Iterator[Span]:
    """Every one from `start` on."""
    at = start
    while (candidate := _url_candidates().search(data, at)) is not None:
        at = candidate.end()
        name = candidate[1]
        value = (_VALUE if name else _PASSWORD).match(data, at)
        if value is None:
            continue
        end = value.end() if name else value.end(1)
        secret = unquote_to_bytes(data[at:end])
        if PLACEHOLDER.match(data, at) is None and (not name or KEY_LIKE.fullmatch(secret)):
            yield Span(at, end, Secret(name.decode().lower() if name else "userinfo", secret))
            at = end


@cache
def _url_candidates() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(f"{_PARAMETER}|{_LOGIN}".encode(), options)


class Prefilter(Protocol):
    """Finds the first place worth a closer look."""

    def search(self, text: bytes) -> object | None: ...


@lru_cache(maxsize=64)
def secret_prefilter(cores: Iterable[bytes]) -> Prefilter:
    """A look for these pieces of known values, and for whatever shape or name may give one away.

    It costs a millisecond to make, so it is for values that are the same for many texts.
    """
    return _automaton(
        *[
            each.encode()
            for each in (PATTERN_CANDIDATE, secret_names.NAME_CANDIDATE, URL_CANDIDATE)
        ],
        *map(re.escape, cores),
    )


@lru_cache(maxsize=64)
def value_prefilter(cores: tuple[bytes, ...]) -> Prefilter:
    """The same for these pieces alone."""
    return _automaton(*map(re.escape, cores))


def _automaton(*patterns: bytes) -> Prefilter:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MAX_AUTOMATON
    found: Prefilter = re2.compile(b"|".join(patterns), options)
    return found
