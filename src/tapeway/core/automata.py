"""Patterns of RE2, which search octets in a single pass however many alternatives they have."""

from typing import Any

_NO_SPAN = (-1, -1)
MAX_AUTOMATON = 64 * 1024 * 1024
"""The memory of the largest patterns."""


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


def re2_module() -> Any:
    # Imported when something is searched for: a server that only replays never does.
    import re2  # type: ignore[import-untyped]

    return re2


def compile_for_bytes(pattern: bytes, *, max_mem: int | None = None) -> Any:
    """An RE2 pattern that searches octets, in any encoding."""
    re2 = re2_module()
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    if max_mem is not None:
        options.max_mem = max_mem
    return re2.compile(pattern, options)


def prefilter(*patterns: bytes) -> Prefilter:
    """The prefilter for these alternatives."""
    return Prefilter(compile_for_bytes(b"|".join(patterns), max_mem=MAX_AUTOMATON))
