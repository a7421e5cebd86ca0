"""Misses by their causes: the requests of a run often miss for one reason."""

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tapeway.core.json_text import dump
from tapeway.core.misses.miss import ABSENT_NOTE, RULE_NOTE, changed_value
from tapeway.engine.journal import MissedCall

_NORMALISED = {
    "uuid": "a UUID",
    "ulid": "a ULID",
    "iso8601": "a time",
    "date": "a date",
    "time": "a time of day",
    "epoch": "a time",
    "duration": "a duration",
    "tmp_path": "a temporary folder",
}
"""What a normaliser replaces, for people; another one is named as it is."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why requests missed, and the rule that would let them match, if there is one."""

    text: str
    rule: str | None
    misses: tuple[MissedCall, ...]

    @property
    def times(self) -> int:
        """How many requests missed."""
        return sum(each.times for each in self.misses)

    @property
    def line(self) -> str:
        """The cause in one line, with the rule for the user's own file."""
        counted = "1 miss" if self.times == 1 else f"{self.times} misses, one cause"
        rule = "" if self.rule is None else f"; rule: {self.rule} in tapeway.toml [rules]"
        return f"{counted}: {self.text}{rule}"


def causes(misses: Iterable[MissedCall]) -> list[Cause]:
    """The causes of misses, the most frequent first."""
    groups: dict[tuple[str, ...], list[MissedCall]] = defaultdict(list)
    for each in misses:
        groups[_identity(each)].append(each)
    found = [_cause(group) for group in groups.values()]
    return sorted(found, key=lambda cause: -cause.times)


def shared_causes(misses: Iterable[MissedCall]) -> list[Cause]:
    """The causes shared by several listed misses."""
    return [
        each for each in causes(misses) if len(each.misses) > 1 and not _is_absent(each.misses[0])
    ]


def listed(misses: Iterable[MissedCall]) -> Iterator[MissedCall]:
    """The misses that a report lists: requests to a cassette that does not exist are one."""
    absent: dict[tuple[str, ...], MissedCall] = {}
    others = []
    for each in misses:
        which = _identity(each)
        if not _is_absent(each):
            others.append(each)
        elif (known := absent.get(which)) is None:
            absent[which] = each
        else:
            absent[which] = replace(known, times=known.times + each.times)
    yield from absent.values()
    yield from others


def _identity(miss: MissedCall) -> tuple[str, ...]:
    """Equal for misses of one cause."""
    if miss.suggestion is not None:
        return ("rule", miss.suggestion)
    if differences := [each for nearest in miss.nearest[:1] for each in nearest.differences]:
        return ("difference", dump(differences[0]).decode())
    said = _said(miss)
    return ("said", said) if _is_absent(miss) else ("said", said, miss.method, miss.path)


def _is_absent(miss: MissedCall) -> bool:
    return _said(miss).startswith(ABSENT_NOTE)


def _said(miss: MissedCall) -> str:
    """The message without the leading request."""
    request = f"{miss.method} {miss.path.partition('?')[0]}"
    return miss.message.removeprefix("replay miss: ").removeprefix(request)


def _cause(misses: Sequence[MissedCall]) -> Cause:
    first = misses[0]
    if first.suggestion is not None:
        rule = ", ".join(first.suggestion.splitlines())
        return Cause(_explained(first.suggestion) or rule, rule, tuple(misses))
    for nearest in first.nearest[:1]:
        for each in nearest.differences[:1]:
            path = str(each["path"]).removeprefix("body.")
            return Cause(f"{path}: {changed_value(each)}", None, tuple(misses))
    text = _said(first).partition(f"; {RULE_NOTE}")[0]
    if _is_absent(first):
        return Cause(text.removeprefix(": "), None, tuple(misses))
    return Cause(f"{first.method} {first.path}{text}", None, tuple(misses))


def _explained(suggestion: str) -> str:
    """What a suggested rule leaves out, in words."""
    try:
        rules = tomllib.loads(suggestion)
    except tomllib.TOMLDecodeError:
        return ""
    found = [_NORMALISED.get(each, each) for each in rules.get("normalise", [])]
    found += [str(each).removeprefix("body.") for each in rules.get("ignore", [])]
    found += [f"text of the form {each}" for each in rules.get("patterns", {})]
    found += [f"the header {each}" for each in rules.get("ignore_vary", [])]
    found += [f"{old} in place of {new}" for old, new in rules.get("rewrite", {}).items()]
    found += [f"what {each} says of its surroundings" for each in rules.get("presets", [])]
    return " and ".join(dict.fromkeys(found))
