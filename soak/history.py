"""What happened in a run: each request, call of the upstream, steering, edit and fault, with its time.

Times are seconds since the run began, on one clock for all. A history is plain data: it is written
to a file when a rule was broken, and can be checked again.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

Kind = Literal["postgres", "sqlite"]
Mode = Literal["replay", "record", "auto", "passthrough"]
What = Literal["mode", "rewind", "eject", "insert", "start"]
FaultKind = Literal[
    "kill", "stop", "crash", "terminate", "drop", "delay", "clock", "full", "starved"
]

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a client. `outcome` is `none` where no whole answer came, `left` where the client
    did not wait for it; `answer` names the upstream's answer or the edit that it got.
    """

    id: str
    instance: int
    cassette: str
    question: str
    began: float
    ended: float
    outcome: str
    status: int = 0
    code: str = ""
    answer: str = ""
    served_from: str = ""


@dataclass(frozen=True, slots=True)
class Called:
    """A call that the upstream got, for the request with the id `asked`."""

    asked: str
    question: str
    answer: str
    began: float


@dataclass(frozen=True, slots=True)
class Steered:
    """An admin call; `start` is a start of all processes together, which begins with `mode`."""

    what: What
    cassette: str | None
    mode: Mode | None
    began: float
    ended: float
    status: int = 200


@dataclass(frozen=True, slots=True)
class Edited:
    """An edit with `If-Match` of the recording that held `expected`."""

    cassette: str
    expected: str
    answer: str
    began: float
    ended: float
    status: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to one instance, or to all, until everything was well again."""

    kind: FaultKind
    instance: int | None
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """A recording that is there at the end. Those of a cassette are listed in its order."""

    cassette: str
    question: str
    answer: str


@dataclass(slots=True)
class History:
    """One run."""

    store: Kind = "postgres"
    asked: list[Asked] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)
    steered: list[Steered] = field(default_factory=list)
    edited: list[Edited] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    recovered: list[Recovered] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """What was wrong by itself: an exit code, a traceback, a damaged cassette, a secret that was seen."""

    def save(self, path: Path) -> None:
        """Write all of it as JSON, an event a line."""
        rows = [json.dumps({"store": self.store, "complaints": self.complaints})]
        for name in _EVENTS:
            rows += [json.dumps({name: asdict(event)}) for event in getattr(self, name)]
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")


_EVENTS: dict[str, type[Any]] = {
    "asked": Asked,
    "called": Called,
    "steered": Steered,
    "edited": Edited,
    "faults": Fault,
    "recovered": Recovered,
}


def load(path: Path) -> History:
    """What `save` wrote."""
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    first = json.loads(head)
    history = History(store=first["store"], complaints=first["complaints"])
    for row in rows:
        ((name, values),) = json.loads(row).items()
        getattr(history, name).append(_EVENTS[name](**values))
    return history
