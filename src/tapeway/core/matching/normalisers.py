"""Normalisers: what varies from run to run inside a text or a number, replaced by a name.

Two texts that differ only in such places become equal: `job 3f2b… at 10:00` and another run's are
both `job <uuid> at <time>`. Keys of objects are left alone.

People's own patterns, run by RE2: its time grows with the text, so that none can hang the server.

RE2 has no look-around and no back-references; a pattern that needs them is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import re2  # type: ignore[import-untyped]

from tapeway.core.json_text import Json


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


class Spelled(str):
    """Hexadecimal digits that stand for octets or their hash: nothing varies inside them."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Normaliser:
    """What stands for one kind of value.

    `numbers` says which numbers are of that kind too. RE2 cannot look behind: where `keeps`, the
    pattern's first group is what stands in front, and stays.
    """

    pattern: str
    example: str
    numbers: Callable[[float], bool] | None = None
    keeps: bool = False


def _is_epoch(number: float) -> bool:
    # Seconds, milliseconds, microseconds or nanoseconds from 2001 to 2033.
    return any(10**digits <= number < 2 * 10**digits for digits in (9, 12, 15, 18))


_BEGINS = r"(^|[^0-9A-Za-z])"
"""Identifiers stand behind blanks, quotes and prefixes such as `file_` alike."""
_CALL = r"(?:[A-Za-z0-9]{22,}|[A-Za-z]*[0-9][A-Za-z0-9]{2,}|[A-Za-z]{3,}[0-9])[A-Za-z0-9_-]*"

_RESPONSE = r"(?:[A-Za-z0-9]{22,}|[A-Za-z]*[0-9][A-Za-z0-9]{4,}|[A-Za-z]{3,}[0-9])[A-Za-z0-9_-]*"
"""Behind `call_` and `run_` there are words too, as in `call_center` and `run_python_code`."""

NORMALISERS: dict[str, Normaliser] = {
    "uuid": Normaliser(
        _BEGINS + r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b",
        "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88",
        keeps=True,
    ),
    "ulid": Normaliser(
        _BEGINS + r"[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "01J9Z3X5M8Q2W4E6R7T9Y1B3C5", keeps=True
    ),
    "iso8601": Normaliser(
        r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
        r"(?:Z\b|[+-][0-9]{2}:?[0-9]{2}\b)?",
        "2026-11-22T10:00:00.123Z",
    ),
    "date": Normaliser(
        # Behind a hyphen it is part of a name, such as that of a model.
        r"(^|[^0-9A-Za-z_-])[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])\b",
        "2026-11-22",
        keeps=True,
    ),
    "time": Normaliser(r"\b[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?\b", "10:00:59"),
    "epoch": Normaliser(
        r"\b1[0-9]{9}(?:[0-9]{3}|[0-9]{6}|[0-9]{9})?(?:\.[0-9]+)?\b", "1795312835", _is_epoch
    ),
    "duration": Normaliser(
        # `5s` may be a telephone and `1990s` a decade, and `10 us` are dollars.
        r"\b[0-9]+(?:\.[0-9]+ ?s|(?:\.[0-9]+)?(?:us| ?(?:ns|µs|ms|sec|secs|seconds|milliseconds)))\b",
        "0.34s",
    ),
    "tmp_path": Normaliser(
        # A path that only holds such a folder is another one.
        r"(^|[^0-9A-Za-z_~./-]|file://)"
        r"(?:(?:/private)?(?:/tmp|/var/tmp|/var/folders/[^/\s\"']+/[^/\s\"']+/T)"
        r"/(?:pytest-of-[^/\s\"']+/pytest-[0-9]+|[^/\s\"'`,;:)\]}>]+)"
        r"|[A-Za-z]:[\\/]+Users[\\/]+[^\\/\"]+[\\/]+AppData[\\/]+Local[\\/]+Temp[\\/]+[^\\/\s\"']+)",
        "/tmp/tmpa1b2c3d4",  # noqa: S108 - shown, not opened
        keeps=True,
    ),
    "tool_call_id": Normaliser(
        r"\b(?:(?:toolu|srvtoolu|tooluse|chatcmpl-tool)[_-][A-Za-z0-9_-]{4,}|(?:call|fc)[_-]"
        rf"{_CALL})",
        "call_h5Xw0Vb1jZ",
    ),
    "response_id": Normaliser(
        r"\b(?:(?:chatcmpl|cmpl)[_-][A-Za-z0-9_-]{6,}|(?:resp|msg|rs|gen|run|thread|asst|req)[_-]"
        rf"{_RESPONSE})",
        "resp_68a1f0c2",
    ),
    "hex32": Normaliser(
        _BEGINS + r"(?:[0-9a-f]{32}|[0-9A-F]{32})\b",
        "9e107d9d372bb6826bd81d3542a419d6",
        keeps=True,
    ),
    "sha1": Normaliser(
        _BEGINS + r"(?:[0-9a-f]{40}|[0-9A-F]{40})\b",
        "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
        keeps=True,
    ),
    "sha256": Normaliser(
        _BEGINS + r"(?:[0-9a-f]{64}|[0-9A-F]{64})\b",
        "d7a8fbb307d7809469ca9abcb0082e4f8d5651e46d3cdb762d02d0bf37c9e592",
        keeps=True,
    ),
    "port": Normaliser(r"\b(?:localhost|127\.0\.0\.1):[0-9]{2,5}\b", "127.0.0.1:54321"),
    "float_tail": Normaliser(r"(\.[0-9]{5})[0-9]+", "0.123456789"),
}
"""By the name that a rule gives. Applied in this order, so that the longer kind comes first."""


def _instead(name: str, normaliser: Normaliser) -> str:
    if name == "float_tail":
        return r"\1"
    return rf"\1<{name}>" if normaliser.keeps else f"<{name}>"


class Normalising:
    """What some normalisers and own patterns make of a value."""

    def __init__(self, names: Sequence[str], patterns: Sequence[tuple[str, str]] = ()) -> None:
        named = [(name, each) for name, each in NORMALISERS.items() if name in names]
        # A person's own come first: they know better what a text of theirs is.
        self._texts = [(compiled(text), f"<{name}>") for name, text in patterns]
        self._texts += [(compiled(each.pattern), _instead(name, each)) for name, each in named]
        self._numbers = [(each.numbers, f"<{name}>") for name, each in named if each.numbers]
        self._rounds = "float_tail" in names

    def text(self, text: str) -> str:
        """A text with every match replaced."""
        for pattern, instead in self._texts:
            text = pattern.sub(instead, text)
        return text

    def value(self, value: Json) -> Json:
        """A value with every text and number in it replaced, however deep it stands."""
        if isinstance(value, str):
            return value if isinstance(value, Spelled) else self.text(value)
        if isinstance(value, dict):
            return {key: self.value(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, bool) or value is None:
            return value
        return self._number(value)

    def _number(self, number: float) -> Json:
        for covers, instead in self._numbers:
            if covers(number):
                return instead
        if self._rounds and isinstance(number, float):
            rounded = round(number, 5)
            return int(rounded) if rounded.is_integer() else rounded
        return number
