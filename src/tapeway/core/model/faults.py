"""Faults: what is to go wrong with replayed answers, with which answers, where in them, how often.

A fault is counted and placed, never drawn by chance.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from tapeway.core.json_text import Json

STATUSES = frozenset({"429", "500", "503", "529"})
"""Faults in whose place the provider's own error stands."""

_BEHIND = ("error_event", "repeat", "corrupt", "close")
"""Faults that stand behind the head alone."""
DOES = (*sorted(STATUSES), *_BEHIND, "reset", "end", "stall", "slow", "timeout")
MATCHED = ("method", "path", "model", "cassette", "index")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PLACE = re.compile(r"(head|tool_call)|(\d{1,12}) bytes?|([1-9]\d{0,11}) events?", re.ASCII)
_CODES = (*range(1000, 1004), *range(1007, 1015), *range(3000, 5000))
_FIRST = {"repeat": "1 event", **dict.fromkeys(("reset", "stall", "timeout", *STATUSES), "head")}
"""Where a fault stands without `after`; any other stands before the first byte of the body."""
_MOST = 10**9
_LONGEST_S = 86_400
_SECONDS = f"must be a number of seconds, up to {_LONGEST_S}"
MOST_FAULTS = 1000


class FaultRefused(ValueError):
    """A fault that cannot be laid; the message says where, what and what to do."""


class Place(NamedTuple):
    """A place in an answer: its head, behind a number of events or bytes, or in a call of a tool."""

    kind: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `times` is a number of answers of a take; 0 is for requests that name the fault.

    `match` limits the answers; in a text `*` stands for a segment, `**` for several.
    """

    name: str
    do: str
    match: Mapping[str, str | int] = field(default_factory=dict)
    times: int = 1
    after: str | None = None
    retry_after: float | None = None
    seconds: float | None = None
    code: int | None = None

    @property
    def place(self) -> Place:
        """The place of the fault."""
        word, octets, events = _PLACE.findall(self.after or _FIRST.get(self.do, "0 bytes"))[0]
        return Place(word or ("events" if events else "bytes"), int(octets or events or 0))

    @property
    def text(self) -> str:
        """The fault for people."""
        where = "" if self.after is None else f" after {self.after}"
        return f"fault '{self.name}': {self.do}{where}"


def _is_number(value: Any, most: float, *kinds: type) -> bool:
    return type(value) in kinds and 0 <= value <= most


_CHECKS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "name": (
        lambda name: isinstance(name, str) and _NAME.fullmatch(name),
        "give each fault a name of up to 64 letters, digits, '.', '_' and '-', beginning with a "
        "letter or digit: answers and reports name it",
    ),
    "do": (lambda do: str(do) in DOES, f"must be one of {', '.join(DOES)}"),
    "match": (
        lambda match: isinstance(match, dict),
        f"must be an object with {', '.join(MATCHED)}",
    ),
    "times": (
        lambda times: _is_number(times, _MOST, int),
        f"must be a whole number from 0 to {_MOST}",
    ),
    "after": (
        lambda after: isinstance(after, str) and _PLACE.fullmatch(after),
        'must be "head", "tool_call", a number of events as "3 events", or of bytes as "512 bytes"',
    ),
    "retry_after": (lambda value: _is_number(value, _LONGEST_S, int, float), _SECONDS),
    "seconds": (lambda value: _is_number(value, _LONGEST_S, int, float), _SECONDS),
    "code": (
        lambda code: type(code) is int and code in _CODES,
        "must be a close code that a service sends, as 1011 or 4000",
    ),
}
"""What each member must be."""
_USERS: Mapping[str, Collection[str]] = {
    "retry_after": STATUSES,
    "seconds": ("stall", "slow", "timeout"),
    "code": ("close",),
}
"""The faults that have a member which others have not."""


def parse_faults(value: object, where: str = "faults") -> tuple[Fault, ...]:
    """The faults of a list of objects. Raises FaultRefused, whose message begins with `where`."""
    if not isinstance(value, list | tuple) or len(value) > MOST_FAULTS:
        raise FaultRefused(f"{where}: must be a list of up to {MOST_FAULTS} faults")
    faults: dict[str, Fault] = {}
    for number, item in enumerate(value):
        fault = _fault(item, f"{where}[{number}]")
        if fault.name in faults:
            raise FaultRefused(
                f"{where}[{number}].name: '{fault.name}' is the name of another fault too"
            )
        faults[fault.name] = fault
    return tuple(faults.values())


def faults_document(faults: Iterable[Fault]) -> list[Json]:
    """The faults as `parse_faults` reads them."""
    return [
        {name: value for name, value in asdict(fault).items() if value not in (None, {})}
        for fault in faults
    ]


def _fault(item: object, where: str) -> Fault:
    known = [member.name for member in fields(Fault)]
    given = _members(item, known, where)
    for name, (check, must) in _CHECKS.items():
        if (name in given or name in ("name", "do")) and not check(given.get(name)):
            raise FaultRefused(f"{where}.{name}: {must}")
        if name == "name":
            where = f"{where} ('{given['name']}')"
    given = {**given, "do": str(given["do"])}
    for name, value in _members(given.get("match", {}), MATCHED, f"{where}.match").items():
        is_text = isinstance(value, str) and value
        if not (_is_number(value, _MOST, int) if name == "index" else is_text):
            kind = "whole number" if name == "index" else "text"
            raise FaultRefused(f"{where}.match.{name}: must be a {kind}; leave it out to match any")
    if wrong := _contradiction(given):
        raise FaultRefused(f"{where}.{wrong}")
    return Fault(**given)


def _members(item: object, known: Collection[str], where: str) -> Mapping[str, Any]:
    if not isinstance(item, Mapping):
        raise FaultRefused(f"{where}: must be an object with {', '.join(known)}")
    if unknown := item.keys() - set(known):
        raise FaultRefused(f"{where}: there is no '{min(unknown)}'; known are {', '.join(known)}")
    return item


def _contradiction(given: Mapping[str, Any]) -> str | None:
    """What contradicts what a fault does, and what to do."""
    do, after = given["do"], given.get("after", "")
    for member, users in _USERS.items():
        if member in given and do not in users:
            return f"{member}: '{do}' has none; leave it out, or do {' or '.join(sorted(users))}"
    if do in ("stall", "slow") and "seconds" not in given:
        return "seconds: say how long, as seconds = 0.5"
    if do in STATUSES and after not in ("", "head"):
        return f"after: '{do}' stands in place of the whole answer; leave it out, or do error_event"
    if do in _BEHIND and after == "head":
        return 'after: there is no event before the head; write "1 event"'
    if do == "repeat" and "byte" in after:
        return 'after: say which event comes twice, as "3 events"'
    return None
