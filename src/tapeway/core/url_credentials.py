"""Credentials in URLs that stand in a text: signed links, parameters named like a key, passwords.

Prose has such URLs too, so only what looks like a key counts: `?api_key=YOUR_KEY` does not.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

import re2  # type: ignore[import-untyped]

from tapeway.core.credentials import Secret
from tapeway.core.placeholders import PLACEHOLDER
from tapeway.core.secret_names import LIKE_A_KEY
from tapeway.core.spans import Span

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

CANDIDATE = f"{_PARAMETER}|{_LOGIN}".replace(f"({_NAMES})", f"(?:{_NAMES})")
"""Where one may stand, in RE2's syntax: a single search for whoever asks for more."""

_VALUE = re.compile(rb"""[^&?#\s"'<>\\,;)\]}]{16,4096}""")
_PASSWORD = re.compile(rb"""(?=[^@]{0,256}[0-9])([^/?#\s@"'<>\\]{12,256})@""")


def find(data: bytes, start: int = 0) -> Iterator[Span]:
    """Every one from `start` on."""
    at = start
    while (candidate := _candidates().search(data, at)) is not None:
        at = candidate.end()
        name = candidate[1]
        value = (_VALUE if name else _PASSWORD).match(data, at)
        if value is None:
            continue
        end = value.end() if name else value.end(1)
        secret = unquote_to_bytes(data[at:end])
        if PLACEHOLDER.match(data, at) is None and (not name or LIKE_A_KEY.fullmatch(secret)):
            yield Span(at, end, Secret(name.decode().lower() if name else "userinfo", secret))
            at = end


@cache
def _candidates() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(f"{_PARAMETER}|{_LOGIN}".encode(), options)
