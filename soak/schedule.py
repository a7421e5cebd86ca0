"""What clients do and what is done to them, all of it drawn from a seed.

The cassettes are used in one way each:

misses      equal requests of several clients at once, in `auto`, `replay` and `passthrough`
repeats-N   recorded in mode `record` in round N, then replayed, rewound and ejected
edits       recordings that two clients edit at the same time
active-…    inserted in turn, and asked without a name
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from soak.history import FaultKind, Kind, Mode, What

CLIENTS = 8
INSTANCES = 4
EDITORS = (0, 1)
"""The clients that edit now and then."""

_EDITED = 3
_REPEATED = 2
_ACTIVE = ("active-a", "active-b")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. One that `leaves` does not wait for its answer."""

    cassette: str
    question: str
    instance: int
    pause_s: float
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """Edit what answers this question, through an instance."""

    cassette: str
    question: str
    instance: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Steer:
    """An admin call, repeated until it is in force everywhere."""

    what: What
    cassette: str
    mode: Mode | None
    instance: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault to come: so long after the round began, for so long."""

    kind: FaultKind
    instance: int
    after_s: float
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """What is steered while a fault happens; clients go on from round to round."""

    number: int
    steering: tuple[Steer, ...]
    fault: PlannedFault


FAULTS: dict[Kind, dict[FaultKind, tuple[float, float]]] = {
    "postgres": {
        "kill": (0.5, 2),
        "stop": (4.5, 9),
        "crash": (0.2, 3),
        "terminate": (0.5, 2),
        "drop": (3, 9),
        "delay": (1, 3),
        "clock": (0.5, 1),
        "full": (1, 3),
    },
    "sqlite": {
        "kill": (0.1, 0.5),
        "stop": (0.5, 4),
        "full": (1, 3),
        "clock": (0.5, 1),
    },
}
"""The faults of each kind of store, and between which lengths in seconds they are drawn."""

SHORT: dict[Kind, Sequence[FaultKind]] = {
    "postgres": ("stop", "crash", "drop"),
    "sqlite": ("kill", "full"),
}
"""Those of a short run, which takes each once; other tests kill instances and end connections."""


def rounds(seed: int, store: Kind) -> Iterator[Round]:
    """All rounds of a run. Every fault comes once before one comes again."""
    chance = random.Random(f"{seed} {store}")
    deck: list[FaultKind] = []
    number = 0
    while True:
        if not deck:
            deck = list(FAULTS[store])
            chance.shuffle(deck)
        yield _round(chance, number, store, deck.pop())
        number += 1


def short_rounds(seed: int, store: Kind) -> Sequence[Round]:
    """The rounds of a short run, whose faults last as short as they may."""
    chance = random.Random(f"{seed} {store} short")
    deck = list(SHORT[store])
    chance.shuffle(deck)
    return [_round(chance, at, store, kind, short=True) for at, kind in enumerate(deck)]


def _round(
    chance: random.Random, number: int, store: Kind, kind: FaultKind, *, short: bool = False
) -> Round:
    least, most = FAULTS[store][kind]
    lasts = least if short else chance.uniform(least, most)
    fault = PlannedFault(
        kind, chance.randrange(INSTANCES), chance.uniform(0.1, 0.6 if short else 2.5), lasts
    )
    return Round(number, tuple(_steering(chance, number, short=short)), fault)


def _steering(chance: random.Random, number: int, *, short: bool) -> Iterator[Steer]:
    repeats = f"repeats-{number}"

    def steer(what: What, cassette: str, mode: Mode | None = None) -> Steer:
        pause = chance.uniform(0.05, 0.1) if short else chance.uniform(0.1, 0.6)
        return Steer(what, cassette, mode, chance.randrange(INSTANCES), pause)

    yield steer("mode", repeats, "record")
    between: tuple[Mode, ...] = ("replay", "passthrough")
    lanes = [
        [
            steer("mode", repeats, "replay"),
            *(steer(chance.choice(("rewind", "eject")), repeats) for _ in range(1 if short else 2)),
        ],
        [
            *(steer("mode", "misses", mode) for mode in chance.sample(between, 1 if short else 2)),
            steer("mode", "misses", "auto"),
        ],
        [steer("insert", name) for name in chance.sample(_ACTIVE, 1 if short else 2)],
    ]
    while lanes := [lane for lane in lanes if lane]:
        yield chance.choice(lanes).pop(0)


def operations(seed: int, store: Kind, client: int) -> Iterator[Ask | Edit]:
    """What one client does, without end; the runner says in which round `repeats` are."""
    chance = random.Random(f"{seed} {store} client {client}")
    number = 0
    while True:
        number += 1
        instance, pause = chance.randrange(INSTANCES), chance.uniform(0.01, 0.06)
        leaves = chance.random() < 0.02
        match chance.choices(("misses", "repeats", "edits", "active"), (45, 35, 12, 8))[0]:
            case "misses":
                # Clients go through the new questions at about the same speed, so that they meet.
                new = chance.random() < 0.8
                asked = number // 3 if new else chance.randrange(max(1, number // 3))
                yield Ask("misses", f"misses/{asked}", instance, pause, leaves)
            case "repeats":
                question = f"again-{chance.randrange(_REPEATED)}"
                yield Ask("repeats", question, instance, pause, leaves)
            case "edits":
                question = f"edits/{chance.randrange(_EDITED)}"
                if client in EDITORS and chance.random() < 0.7:
                    yield Edit("edits", question, instance, pause)
                else:
                    yield Ask("edits", question, instance, pause)
            case _:
                yield Ask("", f"active/{client}-{number}", instance, pause)
