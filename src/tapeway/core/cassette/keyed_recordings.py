"""The recordings of one match key: nearly every key has only one, which then stands for itself."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from tapeway.core.matching.headers import distance
from tapeway.core.matching.headers.conditions import has_conditions
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.errors import DocumentAway


class KeyedRecordings:
    """The recordings of one match key, in the order of the cassette, as after a reload."""

    __slots__ = (
        *("_ends", "_has_repeats", "_headers_differ", "_place_of"),
        *("all", "has_conditions"),
    )

    def __init__(self, place_of: Mapping[int, int]) -> None:
        """`place_of` maps an index to its place, where the two differ."""
        self._place_of = place_of
        self.all: list[Interaction] = []
        self.has_conditions = False
        """Whether there is one that answers some of the requests with the key alone."""
        self._headers_differ: bool | None = None
        self._ends: list[int] | None = None
        self._has_repeats = False

    @property
    def ends(self) -> Sequence[int] | None:
        """The positions of a cursor behind each; None where each has one position."""
        if self._ends is None and self._has_repeats:
            self._ends = list(accumulate([1 + recording.again for recording in self.all]))
        return self._ends

    @property
    def headers_differ(self) -> bool:
        """Whether the recordings differ in their headers or credentials."""
        if self._headers_differ is None:
            self._headers_differ = distance.headers_differ(self.all)
        return self._headers_differ

    @property
    def headers_are_known(self) -> bool:
        """Whether `headers_differ` reads no recording."""
        return self._headers_differ is not None or len(self.all) < 2

    def add(self, interaction: Interaction) -> None:
        """Add a recording at its place in the order."""
        if self._headers_differ is False:
            # Only the new one is compared: polled for hours, a key has thousands of recordings.
            try:
                self._headers_differ = distance.headers_differ([self.all[0], interaction])
            except DocumentAway:
                self._headers_differ = None
        self._ends = None
        self._has_repeats = self._has_repeats or interaction.again > 0
        self.has_conditions = self.has_conditions or _has_conditions(interaction)
        if self.all and self._place(self.all[-1]) > self._place(interaction):
            insort(self.all, interaction, key=self._place)
        else:
            self.all.append(interaction)

    def remove(self, interaction: Interaction) -> None:
        """Remove a recording that is there."""
        self._headers_differ = self._ends = None
        del self.all[bisect_left(self.all, self._place(interaction), key=self._place)]

    def _place(self, interaction: Interaction) -> tuple[int, int]:
        index = interaction.index
        return self._place_of.get(index, index), index


HeldRecordings: TypeAlias = Interaction | KeyedRecordings | None
"""The recordings of a key: a single one that answers every request stands alone."""


def with_recording(
    held: HeldRecordings, more: Interaction, place_of: Mapping[int, int]
) -> Interaction | KeyedRecordings:
    """The recordings of a key, one added. A single recording that answers every request stands alone."""
    if held is None and not _has_conditions(more):
        return more
    recordings = as_recordings(held, place_of) or KeyedRecordings(place_of)
    recordings.add(more)
    return recordings


def as_recordings(held: HeldRecordings, place_of: Mapping[int, int]) -> KeyedRecordings | None:
    """The recordings of a key, however many there are."""
    if not isinstance(held, Interaction):
        return held
    recordings = KeyedRecordings(place_of)
    recordings.add(held)
    return recordings


def indexes_of(held: HeldRecordings) -> tuple[int, ...]:
    """The indexes of what a key has."""
    if isinstance(held, Interaction):
        return (held.index,)
    return () if held is None else tuple([recording.index for recording in held.all])


def _has_conditions(interaction: Interaction) -> bool:
    # One in a file is not read to find out.
    if isinstance(interaction, LazyInteraction):
        return interaction.file.has_conditions(interaction.index)
    return has_conditions(interaction)
