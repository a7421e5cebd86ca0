"""The repeat rule: what answers an equal request again, as a cassette's `meta.repeats` states it.

Tools differ in it, and a cassette that was theirs goes on as it did there. `first` is the rule of
those that look a request up in a table: its first recording answers it, always.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

from tapeway.core.json_text import Json
from tapeway.core.model import Interaction, Request
from tapeway.core.modes import Repeats
from tapeway.core.rules import RulesFault

FIELD = "repeats"
_KNOWN: tuple[Repeats, ...] = get_args(Repeats)


def of_meta(meta: Mapping[str, Json]) -> Repeats:
    """The rule a cassette states, or else that of its tool: AgentTape's recordings answer once.

    Raises RulesFault.
    """
    said = meta.get(FIELD, "miss" if "agenttape_version" in meta else "last")
    for known in _KNOWN:
        if said == known:
            return known
    raise RulesFault(FIELD, "there is no such repeat rule", f"known are {', '.join(_KNOWN)}")


def in_meta(meta: Mapping[str, Json], repeats: Repeats) -> dict[str, Json]:
    """The same `meta` stating this rule."""
    return {**meta, FIELD: repeats}


def first(found: Sequence[Interaction], asked: Request | None) -> Interaction:
    """The first recording of a request that is written the same way, or else the first at all."""
    if asked is not None and len(found) > 1:
        for each in found:
            if each.request.target == asked.target and each.request.body == asked.body:
                return each
    return found[0]
