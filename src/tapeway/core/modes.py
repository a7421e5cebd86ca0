"""The mode table: what a mode does with a request that is recorded, and with one that is not."""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["replay", "record", "auto", "passthrough"]
Repeats = Literal["last", "miss", "cycle", "first"]
Delivery = Literal["buffer", "stream"]
Outcome = Literal["replayed", "recorded", "live", "miss", "error"]


@dataclass(frozen=True, slots=True)
class ModeRules:
    """One row of the table.

    `replays`: a recording answers. `asks`: the upstream may be contacted. `records`: its answer is
    kept. `replaces`: the first answer of a take displaces those of earlier takes.
    """

    replays: bool
    asks: bool
    records: bool
    replaces: bool = False


RULES: dict[Mode, ModeRules] = {
    "replay": ModeRules(replays=True, asks=False, records=False),
    "record": ModeRules(replays=False, asks=True, records=True, replaces=True),
    "auto": ModeRules(replays=True, asks=True, records=True),
    "passthrough": ModeRules(replays=False, asks=True, records=False),
}
