"""A take, one run through a cassette: the used recordings, and the cursor of each key.

Once every recording of a key is used, the cassette's repeat rule (`meta.repeats`) decides what
answers. Tools have different rules, and a cassette keeps the rule of the tool that made it.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields
from typing import get_args

import orjson

from tapeway.core.correlation.unify import IdBindings
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import RulesFault
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request

REPEATS_FIELD = "repeats"
_WRITE_KEY = b"\0write "
_MOST_MARKS = 100
"""Marks of calls that are kept for a key: a client repeats a call soon, or never."""
_REPEATS: tuple[Repeats, ...] = get_args(Repeats)


@dataclass(slots=True)
class Take:
    """One run through a cassette: the requests, the used and the new recordings so far.

    Cursors are named by match keys.
    """

    number: int
    cursors: dict[bytes, int] = field(default_factory=dict)
    """How many requests each cursor has counted: the position of the next recording."""
    touched: set[int] = field(default_factory=set)
    """Indexes of replayed and new recordings."""
    repeat_counts: Counter[int] = field(default_factory=Counter)
    """How often each recording was replayed again, where recordings are counted by index and not by
    cursor.
    """
    recorded_keys: set[bytes] = field(default_factory=set)
    """Keys that this take has recorded. The first recording of a key replaces earlier takes."""
    places: dict[int, int] = field(default_factory=dict)
    """How many times a recording has answered whose answer the service gave several times."""
    repeated: set[int] = field(default_factory=set)
    """Indexes of the recordings that have answered twice or more in this take."""
    kept: set[int] = field(default_factory=set)
    """Indexes of recordings of earlier takes that new answers were equal to: they stay."""
    writes: Counter[bytes] = field(default_factory=Counter)
    """How many writes were asked live, by `write_key`."""
    marks: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    """By key and mark, the recording of a call that its client marked, for the client's retries."""
    variants: dict[bytes, bytes] = field(default_factory=dict)
    """Digests of the credential fields in each cursor's first request, if any."""
    bindings: IdBindings = field(default_factory=IdBindings)
    faults: Counter[bytes] = field(default_factory=Counter)
    """How often each fault has happened."""
    used: set[int] = field(default_factory=set)
    """Indexes touched by any take of the cassette: one set for all takes, slots included."""

    def of_slot(self, number: int) -> "Take":
        """A slot's take. Recordings touched there count as used in this take too."""
        return Take(number, used=self.used)

    def copy(self) -> "Take":
        """The take as it is now; what is chosen in the copy counts as used in the copy alone."""
        own = {member.name: copy(getattr(self, member.name)) for member in fields(self)}
        return Take(**{**own, "bindings": deepcopy(self.bindings)})

    def touch(self, indexes: Collection[int]) -> None:
        """Count recordings as used."""
        self.touched.update(indexes)
        self.used.update(indexes)

    def count_request(self, cursor: bytes, variant: bytes) -> None:
        """Move a cursor to the next recording."""
        position = self.cursors.get(cursor, 0)
        self.cursors[cursor] = position + 1
        if variant and position == 0:
            self.variants[cursor] = variant

    def use(self, cursor: bytes, index: int, variant: bytes = b"") -> None:
        """Count a request that this recording answers."""
        if variant:
            self.count_request(cursor, variant)
        else:
            # The same without a call: each replay counts.
            cursors = self.cursors
            cursors[cursor] = cursors.get(cursor, 0) + 1
        self.touched.add(index)
        self.used.add(index)

    def count_recording(
        self,
        key: bytes,
        variant: bytes,
        index: int,
        mark: bytes = b"",
        *,
        goes_on: bool = False,
    ) -> None:
        """Note a new recording, which counts as used by the recorded request.

        `mark` is what its client repeats when it retries the call. A recording that `goes_on` holds
        more of an answer that was counted before.
        """
        if mark:
            self.marks.setdefault(key, {})[mark] = index
        self.recorded_keys.add(key)
        self.touched.add(index)
        self.used.add(index)
        if not goes_on:
            self.count_request(key, variant)

    def writes_on(self, route: str) -> int:
        """How many writes were asked live on a route."""
        return self.writes.get(write_key(route), 0)

    def first_variant(self, cursor: bytes) -> bytes | None:
        """The variant of a cursor's first request, None before that."""
        return self.variants.get(cursor, b"") if cursor in self.cursors else None

    def repeat(self, indexes: Sequence[int], repeats: Repeats) -> int | None:
        """The used recording that answers again by the repeat rule; None for a miss."""
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
        """The state of a key as JSON, for the instances that share the store. `indexes` are the key's recordings."""
        repeated = sorted(self.repeat_counts.keys() & indexes)
        state: dict[str, Json] = {
            "cursor": self.cursors.get(key),
            "variant": self.variants.get(key, b"").decode(),
            "touched": [*sorted(self.touched.intersection(indexes))],
            "again": [[index, self.repeat_counts[index]] for index in repeated],
            "kept": [*sorted(self.kept.intersection(indexes))],
            "recorded": key in self.recorded_keys,
        }
        if used := sorted(self.places.keys() & indexes):
            state["places"] = [[index, self.places[index]] for index in used]
        if repeated_first := sorted(self.repeated.intersection(indexes)):
            state["repeated"] = [*repeated_first]
        if marks := self.marks.get(key):
            recent = list(marks.items())[-_MOST_MARKS:]
            state["marks"] = {mark.decode(): index for mark, index in recent}
        return orjson.dumps(state)

    def forget_key(self, key: bytes, indexes: Collection[int]) -> None:
        """Have nothing of one key be known; `indexes` are its recordings."""
        self.cursors.pop(key, None)
        self.variants.pop(key, None)
        self.recorded_keys.discard(key)
        for index in indexes:
            for known in (self.touched, self.used, self.kept, self.repeated):
                known.discard(index)
            self.repeat_counts.pop(index, None)
            self.places.pop(index, None)
        self.marks.pop(key, None)

    def restore_key(self, key: bytes, state: bytes) -> None:
        """Apply the state of a key, stored by another instance."""
        if key.startswith(_WRITE_KEY):
            self.writes[key] = int(state)
            return
        known = orjson.loads(state)
        if (cursor := known["cursor"]) is not None:
            self.cursors[key] = cursor
        if variant := known["variant"]:
            self.variants[key] = variant.encode()
        self.touch(known["touched"])
        self.kept.update(known["kept"])
        self.repeated.update(known.get("repeated", ()))
        self.repeat_counts.update(dict(known["again"]))
        self.places.update(dict(known.get("places", ())))
        if marks := known.get("marks"):
            self.marks[key] = {mark.encode(): index for mark, index in marks.items()}
        if known["recorded"]:
            self.recorded_keys.add(key)


def write_key(route: str) -> bytes:
    """The counter of the writes that a take asked live on a route; no match key begins so."""
    return _WRITE_KEY + route.encode("utf-8", "surrogateescape")


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
    """A copy of `meta` with this repeat rule."""
    return {**meta, REPEATS_FIELD: repeats}


def at_cursor(
    recordings: Sequence[Interaction],
    position: int,
    repeats: Repeats,
    ends: Sequence[int] | None = None,
) -> Interaction | None:
    """The recording at a cursor's position. Beyond the last recording the repeat rule decides.

    `ends` are the positions behind each recording, where some recordings have several.
    """
    last = len(recordings) if ends is None else ends[-1]
    if position >= last:
        if repeats != "cycle":
            return None if repeats == "miss" else recordings[-1]
        position %= last
    return recordings[position if ends is None else bisect_right(ends, position)]


def first_recording(recordings: Sequence[Interaction], asked: Request | None) -> Interaction:
    """The first recording of a request with the asked spelling, or else the first of all.

    The rule `first`, of tools with one answer for each request.
    """
    if asked is not None and len(recordings) > 1:
        for recording in recordings:
            if recording.request.target == asked.target and recording.request.body == asked.body:
                return recording
    return recordings[0]
