"""One run through a cassette: its cursors, and what it recorded.

The repeat rule: what answers an equal request again, as a cassette's `meta.repeats` states it.

Tools differ in it, and a cassette that was theirs goes on as it did there. `first` is the rule of
those that look a request up in a table: its first recording answers it, always.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, get_args

import orjson

from tapeway.core.correlation.unify import IdBindings
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import RulesFault
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request

T = TypeVar("T")
REPEATS_FIELD = "repeats"
_KNOWN: tuple[Repeats, ...] = get_args(Repeats)


@dataclass(slots=True)
class Take:
    """What one run has asked for, been given and recorded so far."""

    number: int
    cursors: dict[bytes, int] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    again: Counter[int] = field(default_factory=Counter)
    recorded: set[tuple[bytes, bytes]] = field(default_factory=set)
    variants: dict[bytes, bytes] = field(default_factory=dict)
    bindings: IdBindings = field(default_factory=IdBindings)

    def ask(self, cursor: bytes, variant: bytes) -> None:
        """Note a turn, and with the first one the credential it was asked with."""
        turn = self.cursors.get(cursor, 0)
        self.cursors[cursor] = turn + 1
        if variant and turn == 0:
            self.variants[cursor] = variant

    def note_recorded(self, key: bytes, cursor: bytes, variant: bytes, index: int) -> None:
        """Note a new recording; its request counts as the first to be given it."""
        self.recorded.add((key, variant))
        self.touched.add(index)
        self.ask(cursor, variant)

    def asked_with(self, cursor: bytes) -> bytes | None:
        """The credential of the first turn, None where there was none yet."""
        return self.variants.get(cursor, b"") if cursor in self.cursors else None

    def key_state(self, key: bytes, indexes: Collection[int]) -> bytes:
        """Where one key stands, as text for others; `indexes` are those that answer it."""
        return orjson.dumps(
            {
                "cursors": _texts(key, self.cursors),
                "marks": {at: _text(variant) for at, variant in _texts(key, self.variants).items()},
                "touched": sorted(self.touched.intersection(indexes)),
                "again": [
                    [each, self.again[each]] for each in sorted(self.again) if each in indexes
                ],
                "recorded": sorted(_text(variant) for of, variant in self.recorded if of == key),
            }
        )

    def restore_key(self, key: bytes, state: bytes) -> None:
        """Put one key where others have left it."""
        said = orjson.loads(state)
        self.cursors |= {key + _octets(at): turn for at, turn in said["cursors"].items()}
        self.variants |= {
            key + _octets(at): _octets(variant) for at, variant in said["marks"].items()
        }
        self.touched.update(said["touched"])
        self.again.update(dict(said["again"]))
        self.recorded |= {(key, _octets(variant)) for variant in said["recorded"]}


def _texts(key: bytes, values: Mapping[bytes, T]) -> dict[str, T]:
    return {_text(at[len(key) :]): each for at, each in values.items() if at.startswith(key)}


def _text(octets: bytes) -> str:
    return octets.decode("latin-1")


def _octets(text: str) -> bytes:
    return text.encode("latin-1")


def repeats_of_meta(meta: Mapping[str, Json]) -> Repeats:
    """The rule a cassette states, or else that of its tool: AgentTape's recordings answer once.

    Raises RulesFault.
    """
    said = meta.get(REPEATS_FIELD, "miss" if "agenttape_version" in meta else "last")
    for known in _KNOWN:
        if said == known:
            return known
    raise RulesFault(
        REPEATS_FIELD, "there is no such repeat rule", f"known are {', '.join(_KNOWN)}"
    )


def meta_with_repeats(meta: Mapping[str, Json], repeats: Repeats) -> dict[str, Json]:
    """The same `meta` stating this rule."""
    return {**meta, REPEATS_FIELD: repeats}


def first_recording(found: Sequence[Interaction], asked: Request | None) -> Interaction:
    """The first recording of a request that is written the same way, or else the first at all."""
    if asked is not None and len(found) > 1:
        for each in found:
            if each.request.target == asked.target and each.request.body == asked.body:
                return each
    return found[0]
