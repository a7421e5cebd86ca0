"""The recordings of a cassette, kept so that each of them is shown at once."""

from collections.abc import Iterable

from tapeway.core.model.interaction import AnyInteraction, Interaction

MOST_HELD = 96 * 1024 * 1024
"""Bytes of one cassette. Of a larger one nothing is kept, and each look reads the file."""

_OVERHEAD = 1024
"""What a recording takes in memory beside its bodies, roughly."""


class HeldRecordings:
    """The recordings of one version of a cassette by index."""

    def __init__(self, items: Iterable[AnyInteraction], most: int = MOST_HELD) -> None:
        self.size = 0
        self._items: dict[int, AnyInteraction] = {}
        for each in items:
            self.size += _size_of(each)
            if self.size > most:
                self.size, self._items = 0, {}
                return
            self._items[each.index] = each

    def get(self, index: int) -> AnyInteraction | None:
        """A recording; None for one that is not there, or not kept."""
        return self._items.get(index)


def _size_of(item: AnyInteraction) -> int:
    if not isinstance(item, Interaction):
        return 4 * _OVERHEAD
    return _OVERHEAD + len(item.request.body) + len(item.response.body)
