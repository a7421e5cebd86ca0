"""People's own patterns, run by RE2: its time grows with the text, so that none can hang the server.

RE2 has no look-around and no back-references; a pattern that needs them is refused.
"""

from functools import lru_cache
from typing import Protocol

import re2  # type: ignore[import-untyped]


class Pattern(Protocol):
    """What is used of a compiled pattern."""

    def sub(self, repl: str, string: str) -> str: ...

    def search(self, string: str) -> object | None: ...


class PatternFault(ValueError):
    """A pattern that RE2 does not take, and why."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    """The pattern made ready. Raises PatternFault."""
    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    try:
        found: Pattern = re2.compile(pattern, options)
        empty = found.search("") is not None
    except (re2.error, UnicodeError) as exc:
        reason = exc.args[0] if exc.args else "it cannot be read"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternFault(text) from exc
    if empty:
        raise PatternFault("it matches the empty text, so it would match everywhere")
    return found
