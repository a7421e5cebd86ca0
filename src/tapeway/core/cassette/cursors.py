"""A take, one run through a cassette: the recordings it used, and the cursor of each key.

Once every recording of a key is used, the cassette's repeat rule (`meta.repeats`) decides what
answers. Tools have different rules, and a cassette made by another tool keeps that tool's rule.
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
_REPEATS: tuple[Repeats, ...] = get_args(Repeats)


@dataclass(slots=True)
class Take:
    """What one run through a cassette has asked for, used and recorded so far.

    A cursor is named by a match key, followed by the credential variant where recordings of the key
    have several.
    """

    number: int
    cursors: dict[bytes, int] = field(default_factory=dict)
    """How many requests each cursor has counted: the position of the next recording."""
    touched: set[int] = field(default_factory=set)
    """Indexes of the recordings that were replayed or made."""
    repeat_counts: Counter[int] = field(default_factory=Counter)
    """How often each recording was replayed again, where recordings are counted by index and not by
    cursor.
    """
    recorded_keys: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Key and variant of what was recorded: it replaces earlier takes only once."""
    kept: set[int] = field(default_factory=set)
    """Indexes of recordings of earlier takes that new answers were equal to: they stay."""
    variants: dict[bytes, bytes] = field(default_factory=dict)
    """The variant of each cursor's first request, where it carried a credential."""
    bindings: IdBindings = field(default_factory=IdBindings)

    def count_request(self, cursor: bytes, variant: bytes) -> None:
        """Move a cursor to the next recording."""
        position = self.cursors.get(cursor, 0)
        self.cursors[cursor] = position + 1
        if variant and position == 0:
            self.variants[cursor] = variant

    def count_recording(self, key: bytes, cursor: bytes, variant: bytes, index: int) -> None:
        """Note a new recording; it counts as used by the request that was recorded."""
        self.recorded_keys.add((key, variant))
        self.touched.add(index)
        self.count_request(cursor, variant)

    def first_variant(self, cursor: bytes) -> bytes | None:
        """The variant of a cursor's first request, None before that."""
        return self.variants.get(cursor, b"") if cursor in self.cursors else None

    def repeat(self, indexes: Sequence[int], repeats: Repeats) -> int | None:
        """Which of these recordings, all used, answers again; None where the rule is to miss."""
        match repeats:
            case "miss":
                return None
            case "first":
                return indexes[0]
            case "last":
                return indexes[-1]
            case "cycle":
                chosen = min(indexes, key=lambda index: self.repeat_counts[index])
                self.repeat_counts[chosen] += 1
                return chosen

    def key_state(self, key: bytes, indexes: Collection[int]) -> bytes:
        """The state of one key, as JSON for other instances; `indexes` are its recordings."""
        variants = _of_key(key, self.variants).items()
        repeated = sorted(self.repeat_counts.keys() & indexes)
        return orjson.dumps(
            {
                "cursors": _of_key(key, self.cursors),
                "marks": {suffix: _text(variant) for suffix, variant in variants},
                "touched": sorted(self.touched.intersection(indexes)),
                "again": [[index, self.repeat_counts[index]] for index in repeated],
                "kept": sorted(self.kept.intersection(indexes)),
                "recorded": sorted(
                    _text(variant) for of, variant in self.recorded_keys if of == key
                ),
            }
        )

    def restore_key(self, key: bytes, state: bytes) -> None:
        """Apply the state of one key that another instance stored."""
        known = orjson.loads(state)
        self.cursors |= {key + _octets(suffix): count for suffix, count in known["cursors"].items()}
        self.variants |= {
            key + _octets(suffix): _octets(variant) for suffix, variant in known["marks"].items()
        }
        self.touched.update(known["touched"])
        self.kept.update(known.get("kept", ()))
        self.repeat_counts.update(dict(known["again"]))
        self.recorded_keys |= {(key, _octets(variant)) for variant in known["recorded"]}


def _of_key(key: bytes, values: Mapping[bytes, T]) -> dict[str, T]:
    """The values of a key's cursors, by what follows the key in a cursor's name."""
    size = len(key)
    return {_text(name[size:]): each for name, each in values.items() if name.startswith(key)}


def _text(octets: bytes) -> str:
    return octets.decode("latin-1")


def _octets(text: str) -> bytes:
    return text.encode("latin-1")


def repeats_of_meta(meta: Mapping[str, Json]) -> Repeats:
    """The repeat rule in a cassette's `meta`, or else its tool's: AgentTape's answer once.

    Raises RulesFault.
    """
    stated = meta.get(REPEATS_FIELD, "miss" if "agenttape_version" in meta else "last")
    for known in _REPEATS:
        if stated == known:
            return known
    raise RulesFault(
        REPEATS_FIELD, "there is no such repeat rule", f"known are {', '.join(_REPEATS)}"
    )


def meta_with_repeats(meta: Mapping[str, Json], repeats: Repeats) -> dict[str, Json]:
    """The same `meta` with this repeat rule."""
    return {**meta, REPEATS_FIELD: repeats}


def first_recording(recordings: Sequence[Interaction], asked: Request | None) -> Interaction:
    """The first recording of a request with the same spelling, or else the first of all.

    This is the rule `first`, that of tools with one answer for each request.
    """
    if asked is not None and len(recordings) > 1:
        for each in recordings:
            if each.request.target == asked.target and each.request.body == asked.body:
                return each
    return recordings[0]
