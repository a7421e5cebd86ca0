"""The order of a cassette's interactions while recordings come in.

A recording takes the place of the first superseded recording, so that recording anew changes a file
only where an answer changed. A recording that supersedes nothing has the place of its index. The
index is reserved when the request comes, so recordings are in the order of the requests.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class RecordingOrder(Generic[T]):
    """Items by index, in order; `next_free` is an index above all earlier indexes.

    Adding an item costs the same however many items there are.
    """

    def __init__(self, items: Iterable[tuple[int, T]] = ()) -> None:
        # Of two writers that gave the same index both are kept; the index names the later one.
        self._entries: list[tuple[tuple[int, int], int, T] | None] = []
        self._entry_of: dict[int, int] = {}
        self.next_free = 0
        for place, (index, item) in enumerate(items):
            # Initial recordings come first, whatever their indexes.
            self._put(index, item, (0, place))

    def __contains__(self, index: int) -> bool:
        return index in self._entry_of

    def get(self, index: int) -> T | None:
        entry = self._entry_of.get(index)
        slot = None if entry is None else self._entries[entry]
        return None if slot is None else slot[2]

    def add(self, index: int, item: T, supersedes: Iterable[int] = ()) -> None:
        freed: set[tuple[int, int]] = set()
        for superseded in supersedes:
            if (entry := self._entry_of.pop(superseded, None)) is not None:
                slot, self._entries[entry] = self._entries[entry], None
                if slot is not None:
                    freed.add(slot[0])
        self._put(index, item, min(freed, default=(1, index)))

    def items(self) -> list[tuple[int, T]]:
        held = sorted(
            [entry for entry in self._entries if entry is not None], key=lambda slot: slot[0]
        )
        return [(index, item) for _, index, item in held]

    def _put(self, index: int, item: T, place: tuple[int, int]) -> None:
        self._entry_of[index] = len(self._entries)
        self._entries.append((place, index, item))
        self.next_free = max(self.next_free, index + 1)
