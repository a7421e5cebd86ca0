"""Faults: what is to go wrong with replayed answers, with which answers, where in them, how often.

A fault is counted and placed, never drawn by chance.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from tapeway.core.json_text import Json

STATUSES = frozenset({"429", "500", "503", "529"})
"""Faults in whose place the provider's own error stands."""

DOES = (
    *sorted(STATUSES),
    *("error_event", "reset", "end", "stall", "slow", "repeat", "corrupt", "timeout", "close"),
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PLACE = re.compile(r"(head|tool_call)|([0-9]{1,12}) (events?|bytes?)")
_FIRST = {"error_event": "0 bytes", "end": "0 bytes", "slow": "0 bytes", "close": "0 bytes"}
_FIRST |= {"repeat": "1 event", "corrupt": "0 bytes"}
"""Where a fault stands without `after`; any other stands before the head."""
_LONGEST_S = 86_400.0
_MOST = 10**9
MOST_FAULTS = 1000


class FaultRefused(ValueError):
    """A fault that cannot be laid; the message says where, what and what to do."""


class Place(NamedTuple):
    """A place in an answer: its head, behind a number of events or bytes, or in a call of a tool."""

    kind: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class FaultMatch:
    """Which answers a fault is for; in a text `*` stands for a segment, `**` for several."""

    method: str | None = None
    path: str | None = None
    model: str | None = None
    cassette: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `times` counts the answers of a take; 0 is for requests that name the fault."""

    name: str
    do: str
    match: FaultMatch = FaultMatch()
    times: int = 1
    after: str | None = None
    retry_after: float | None = None
    seconds: float | None = None
    code: int | None = None

    @property
    def place(self) -> Place:
        """Where it stands."""
        found = _PLACE.fullmatch(self.after or _FIRST.get(self.do, "head"))
        if found is None:
            raise ValueError(f"'{self.after}' is no place")
        return Place(found[1]) if found[1] else Place(found[3].rstrip("s") + "s", int(found[2]))

    @property
    def text(self) -> str:
        """The fault for people."""
        where = "" if self.after is None else f" after {self.after}"
        return f"fault '{self.name}': {self.do}{where}"


def parse_faults(value: object, where: str = "faults") -> tuple[Fault, ...]:
    """The faults of a list of objects. Raises FaultRefused, whose message begins with `where`."""
    if not isinstance(value, list | tuple):
        raise FaultRefused(f"{where}: must be a list of faults, each with a name and what to do")
    if len(value) > MOST_FAULTS:
        raise FaultRefused(f"{where}: there may be {MOST_FAULTS} of them at most")
    faults: dict[str, Fault] = {}
    for number, item in enumerate(value):
        fault = _fault(item, f"{where}[{number}]")
        if fault.name in faults:
            raise FaultRefused(
                f"{where}[{number}].name: '{fault.name}' is the name of another fault too: give "
                "each fault its own"
            )
        faults[fault.name] = fault
    return tuple(faults.values())


def faults_document(faults: Iterable[Fault]) -> list[Json]:
    """The faults as `parse_faults` reads them."""
    return [
        {**_given(fault), **({"match": match} if (match := _given(fault.match)) else {})}
        for fault in faults
    ]


def _given(value: Fault | FaultMatch) -> dict[str, Json]:
    members = {member.name: getattr(value, member.name) for member in fields(value)}
    members.pop("match", None)
    return {name: member for name, member in members.items() if member is not None}


def _fault(value: object, where: str) -> Fault:
    item = _members(value, [member.name for member in fields(Fault)], where)
    name, do = item.get("name"), item.get("do")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FaultRefused(
            f"{where}.name: give each fault a name of up to 64 letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit: answers and reports name it"
        )
    where = f"{where} ('{name}')"
    do = str(do) if type(do) is int else do
    if do not in DOES:
        raise FaultRefused(f"{where}.do: must be one of {', '.join(DOES)}")
    _check_members(item, str(do), where)
    return Fault(
        name,
        str(do),
        _match(item.get("match", {}), f"{where}.match"),
        _whole(item.get("times", 1), f"{where}.times"),
        _after(item.get("after"), str(do), where),
        _number(item.get("retry_after"), f"{where}.retry_after"),
        _number(item.get("seconds"), f"{where}.seconds"),
        _code(item.get("code"), f"{where}.code"),
    )


def _members(value: object, known: Collection[str], where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise FaultRefused(f"{where}: must be an object with {', '.join(known)}")
    if unknown := value.keys() - set(known):
        raise FaultRefused(f"{where}: there is no '{min(unknown)}'; known are {', '.join(known)}")
    return value


def _check_members(item: Mapping[str, object], do: str, where: str) -> None:
    users: dict[str, Collection[str]] = {
        "retry_after": STATUSES,
        "seconds": ("stall", "slow", "timeout"),
        "code": ("close",),
    }
    for member, users_of_it in users.items():
        if member in item and do not in users_of_it:
            raise FaultRefused(
                f"{where}.{member}: '{do}' has none; leave it out, or do "
                f"{' or '.join(sorted(users_of_it))}"
            )
    if do in ("stall", "slow") and "seconds" not in item:
        raise FaultRefused(f"{where}.seconds: say how long, as seconds = 0.5")


def _match(value: object, where: str) -> FaultMatch:
    known = [member.name for member in fields(FaultMatch)]
    item = _members(value, known, where)
    for name in known[:-1]:
        if name in item and not (isinstance(item[name], str) and item[name]):
            raise FaultRefused(f"{where}.{name}: must be a text; leave it out to match any")
    texts = {name: str(item[name]) for name in known[:-1] if name in item}
    index = _whole(item["index"], f"{where}.index") if "index" in item else None
    return FaultMatch(**texts, index=index)


def _after(value: object, do: str, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _PLACE.fullmatch(value) or value.startswith("0 event"):
        raise FaultRefused(
            f'{where}.after: must be "head", "tool_call", a number of events as "3 events", or of '
            'bytes as "512 bytes"'
        )
    if do in STATUSES and value != "head":
        raise FaultRefused(
            f"{where}.after: '{do}' stands in place of the whole answer; leave it out, or do "
            "error_event, reset or end"
        )
    if do in ("error_event", "repeat", "corrupt", "close") and value == "head":
        raise FaultRefused(f'{where}.after: there is no event before the head; write "1 event"')
    if do == "repeat" and not value.endswith(("event", "events", "tool_call")):
        raise FaultRefused(f'{where}.after: say which event comes twice, as "3 events"')
    return value


def _whole(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise FaultRefused(f"{where}: must be a whole number from 0 to {_MOST}")
    return value


def _number(value: object, where: str) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= float(str(value)) <= _LONGEST_S:
        raise FaultRefused(f"{where}: must be a number of seconds, up to {_LONGEST_S:.0f}")
    return float(str(value))


def _code(value: object, where: str) -> int | None:
    if value is None:
        return None
    codes = (*range(1000, 1004), *range(1007, 1015), *range(3000, 5000))
    if type(value) is not int or value not in codes:
        raise FaultRefused(f"{where}: must be a close code that a service sends, as 1011 or 4000")
    return value
