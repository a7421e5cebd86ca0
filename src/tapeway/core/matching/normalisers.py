"""Normalisers: replace values that vary from run to run by the name of their kind.

Two texts that differ only in such values become equal: `job 3f2b… at 10:00:59` becomes `job <uuid>
at <time>` in every run. Only texts are normalised, not keys, numbers and booleans, so `stream`, `n`
and `temperature` always count.

Built-in and custom patterns run in RE2: its time is linear in the text, so no pattern can hang the
server. It has no look-around and no back-references.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol, Self

from tapeway.core.dates import DATE_PATTERN, is_written_date
from tapeway.core.digests import sha256
from tapeway.core.json_text import Json


class Match(Protocol):
    """What a pattern found."""

    string: str

    def span(self, group: int = 0) -> tuple[int, int]: ...

    def __getitem__(self, group: int) -> str | None: ...


class Pattern(Protocol):
    """A compiled pattern: RE2 comes without types."""

    def sub(self, repl: str | Callable[[Match], str], string: str) -> str: ...

    def search(self, string: str) -> object | None: ...


class PatternFault(ValueError):
    """A pattern that cannot be used, and why."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern. Raises PatternFault."""
    # Only here: a command that reads the options alone has no pattern.
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    try:
        compiled: Pattern = re2.compile(pattern, options)
        empty = compiled.search("") is not None
    except (re2.error, UnicodeError) as exc:
        reason = exc.args[0] if exc.args else "it cannot be read"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternFault(text) from exc
    if empty:
        raise PatternFault("it matches the empty text, so it would match everywhere")
    return compiled


class HexText(str):
    """Hexadecimal digits of octets or of their hash, in which no normaliser replaces anything."""

    __slots__ = ()


class OctetsHash(HexText):
    """The hash of octets that are no text, with these octets."""

    octets: bytes

    @classmethod
    def of(cls, octets: bytes) -> Self:
        """The hash of these octets."""
        made = cls(sha256(octets).hexdigest())
        made.octets = octets
        return made


@dataclass(frozen=True, slots=True)
class Normaliser:
    """One kind of value that varies.

    `numbers` decides whether a JSON number is of the kind. RE2 has no look-behind: with
    `keeps_first_group`, the pattern's first group must precede the value, and is kept. `accepts`
    gets the text and the place of a match, and checks the surrounding text.
    """

    pattern: str
    example: str
    numbers: Callable[[float], bool] | None = None
    keeps_first_group: bool = False
    accepts: Callable[[str, int, int], bool] | None = None


def _is_epoch(number: float) -> bool:
    # Seconds, milliseconds, microseconds or nanoseconds from 2001 to 2033.
    return any(10**digits <= number < 2 * 10**digits for digits in (9, 12, 15, 18))


_NOT_IN_A_WORD = r"(^|[^0-9A-Za-z])"
"""Values may follow blanks, quotes and prefixes such as `file_`."""
_CALL_SUFFIX = r"(?:[A-Za-z0-9]{22,}|[A-Za-z]*[0-9][A-Za-z0-9]{2,}|[A-Za-z]{3,}[0-9])[A-Za-z0-9_-]*"

_RESPONSE_SUFFIX = (
    r"(?:[A-Za-z0-9]{22,}|[A-Za-z]*[0-9][A-Za-z0-9]{4,}|[A-Za-z]{3,}[0-9])[A-Za-z0-9_-]*"
)
"""Behind `call_` and `run_` there are words too, as in `call_center` and `run_python_code`."""

NORMALISERS: dict[str, Normaliser] = {
    "uuid": Normaliser(
        _NOT_IN_A_WORD
        + r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b",
        "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88",
        keeps_first_group=True,
    ),
    "ulid": Normaliser(
        _NOT_IN_A_WORD + r"[0-7][0-9A-HJKMNP-TV-Z]{25}\b",
        "01J9Z3X5M8Q2W4E6R7T9Y1B3C5",
        keeps_first_group=True,
    ),
    "iso8601": Normaliser(
        r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
        r"(?:Z\b|[+-][0-9]{2}:?[0-9]{2}\b)?",
        "2026-11-22T10:00:00.123Z",
    ),
    "date": Normaliser(
        DATE_PATTERN, "November 22, 2026", keeps_first_group=True, accepts=is_written_date
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
        # A path with such a folder in the middle is no temporary path.
        r"(^|[^0-9A-Za-z_~./-]|file://)"
        r"(?:(?:/private)?(?:/tmp|/var/tmp|/var/folders/[^/\s\"']+/[^/\s\"']+/T)"
        r"/(?:pytest-of-[^/\s\"']+/pytest-[0-9]+(?:/popen-gw[0-9]+)?|[^/\s\"'`,;:)\]}>]+)"
        r"|[A-Za-z]:[\\/]+Users[\\/]+[^\\/\"]+[\\/]+AppData[\\/]+Local[\\/]+Temp[\\/]+[^\\/\s\"']+)",
        "/tmp/tmpa1b2c3d4",  # noqa: S108 - shown, not opened
        keeps_first_group=True,
    ),
    "tool_call_id": Normaliser(
        r"\b(?:(?:toolu|srvtoolu|tooluse|chatcmpl-tool)[_-][A-Za-z0-9_-]{4,}|(?:call|fc)[_-]"
        rf"{_CALL_SUFFIX})",
        "call_h5Xw0Vb1jZ",
    ),
    "response_id": Normaliser(
        r"\b(?:(?:chatcmpl|cmpl)[_-][A-Za-z0-9_-]{6,}|(?:resp|msg|rs|gen|run|thread|asst|req)[_-]"
        rf"{_RESPONSE_SUFFIX})",
        "resp_68a1f0c2",
    ),
    "hex32": Normaliser(
        _NOT_IN_A_WORD + r"(?:[0-9a-f]{32}|[0-9A-F]{32})\b",
        "9e107d9d372bb6826bd81d3542a419d6",
        keeps_first_group=True,
    ),
    "sha1": Normaliser(
        _NOT_IN_A_WORD + r"(?:[0-9a-f]{40}|[0-9A-F]{40})\b",
        "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
        keeps_first_group=True,
    ),
    "sha256": Normaliser(
        _NOT_IN_A_WORD + r"(?:[0-9a-f]{64}|[0-9A-F]{64})\b",
        "d7a8fbb307d7809469ca9abcb0082e4f8d5651e46d3cdb762d02d0bf37c9e592",
        keeps_first_group=True,
    ),
    "port": Normaliser(r"\b(?:localhost|127\.0\.0\.1):[0-9]{2,5}\b", "127.0.0.1:54321"),
    "float_tail": Normaliser(r"(\.[0-9]{5})[0-9]+", "0.123456789"),
}
"""The normalisers by name, in the order of application: longer kinds first."""


_Substitution = tuple[Pattern, str | Callable[[Match], str]]
_VERSION_NAME = re.compile(r"(?i)version$")


def _replacement(name: str, normaliser: Normaliser) -> str | Callable[[Match], str]:
    if name == "float_tail":
        return r"\1"
    if (accepts := normaliser.accepts) is not None:
        return partial(_replaced, f"<{name}>", accepts)
    return rf"\1<{name}>" if normaliser.keeps_first_group else f"<{name}>"


def _replaced(name: str, accepts: Callable[[str, int, int], bool], match: Match) -> str:
    start, end = match.span()
    if not accepts(match.string, start, end):
        return match.string[start:end]
    return (match[1] or "") + name


def _substituted(text: str, steps: Sequence[_Substitution]) -> str:
    for pattern, replacement in steps:
        text = pattern.sub(replacement, text)
    return text


class NormaliserSet:
    """Applies some normalisers, and custom patterns by name, to values.

    What the patterns `removed` match is left out of the texts.
    """

    _texts: list[_Substitution]

    def __init__(
        self,
        names: Sequence[str] = (),
        patterns: Sequence[tuple[str, str]] = (),
        *,
        removed: Sequence[str] = (),
    ) -> None:
        named = [(name, normaliser) for name, normaliser in NORMALISERS.items() if name in names]
        # Custom patterns come first: they are more specific.
        self._texts = [(compile_pattern(text), f"<{name}>") for name, text in patterns]
        if removed:
            # One search for all kinds is quicker than a search for each.
            together = "|".join([f"(?:{text})" for text in removed])
            self._texts.append((compile_pattern(together), ""))
        self._version_texts = [*self._texts]
        for name, normaliser in named:
            step = compile_pattern(normaliser.pattern), _replacement(name, normaliser)
            self._texts.append(step)
            if name != "date":
                self._version_texts.append(step)
        self._numbers = [
            (normaliser.numbers, f"<{name}>") for name, normaliser in named if normaliser.numbers
        ]
        self._rounds = "float_tail" in names

    def text(self, text: str) -> str:
        """A text with every match replaced."""
        return _substituted(text, self._texts)

    def value(self, value: Json, *, is_version: bool = False) -> Json:
        """A value with its texts and numbers normalised at any depth.

        The date of a version, such as that of the query parameter `api-version`, is not replaced.
        """
        if isinstance(value, str):
            if isinstance(value, HexText):
                return value
            return _substituted(value, self._version_texts if is_version else self._texts)
        if isinstance(value, dict):
            return {
                key: self.value(member, is_version=_VERSION_NAME.search(key) is not None)
                for key, member in value.items()
            }
        if isinstance(value, list):
            return [self.value(item, is_version=is_version) for item in value]
        if isinstance(value, bool) or value is None:
            return value
        return self._number(value)

    def _number(self, number: float) -> Json:
        for is_of_kind, replacement in self._numbers:
            if is_of_kind(number):
                return replacement
        if self._rounds and isinstance(number, float):
            rounded = round(number, 5)
            return int(rounded) if rounded.is_integer() else rounded
        return number
