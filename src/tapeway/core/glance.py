"""One fast look that tells whether a text may hold any secret at all.

Nearly none does, so this is what redaction costs: a single pass of RE2's automaton over the text,
some 1.6 µs for each KiB, for all shapes, all names of fields and all values that stay the same.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import re2  # type: ignore[import-untyped]

from tapeway.core import secret_names
from tapeway.core.shapes import CANDIDATE as SHAPES
from tapeway.core.url_credentials import CANDIDATE as CREDENTIALS

_MAX_AUTOMATON = 64 * 1024 * 1024


class Glance(Protocol):
    """Finds the first place worth a closer look."""

    def search(self, text: bytes) -> object | None: ...


@lru_cache(maxsize=64)
def glance(cores: Iterable[bytes]) -> Glance:
    """A look for these pieces of known values, and for whatever shape or name may give one away.

    It costs a millisecond to make, so it is for values that are the same for many texts.
    """
    return _automaton(
        *[each.encode() for each in (SHAPES, secret_names.CANDIDATE, CREDENTIALS)],
        *map(re.escape, cores),
    )


@lru_cache(maxsize=64)
def values_only(cores: tuple[bytes, ...]) -> Glance:
    """The same for these pieces alone."""
    return _automaton(*map(re.escape, cores))


def _automaton(*patterns: bytes) -> Glance:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MAX_AUTOMATON
    found: Glance = re2.compile(b"|".join(patterns), options)
    return found
