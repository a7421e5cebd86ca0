"""The order of a cassette's interactions while recordings come in.

A recording takes the place of the first one it supersedes, so that recording anew changes a file
only where an answer changed; one that supersedes nothing goes to the end.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class RecordingOrder(Generic[T]):
    """Items by index, in order; `next_free` is an index above all there ever were.

    Adding one costs the same however many there are.
    """

    def __init__(self, items: Iterable[tuple[int, T]] = ()) -> None:
        self._slots: list[tuple[int, T] | None] = []
        self._slot_of: dict[int, int] = {}
        self.next_free = 0
        for index, item in items:
            self.add(index, item)

    def __contains__(self, index: int) -> bool:
        return index in self._slot_of

    def get(self, index: int) -> T | None:
        slot = self._slot_of.get(index)
        found = None if slot is None else self._slots[slot]
        return None if found is None else found[1]

    def add(self, index: int, item: T, supersedes: Iterable[int] = ()) -> None:
        freed = [self._slot_of.pop(each) for each in supersedes if each in self._slot_of]
        for slot in freed:
            self._slots[slot] = None
        slot = min(freed, default=len(self._slots))
        if slot == len(self._slots):
            self._slots.append(None)
        self._slots[slot] = (index, item)
        self._slot_of[index] = slot
        self.next_free = max(self.next_free, index + 1)

    def items(self) -> list[tuple[int, T]]:
        return [slot for slot in self._slots if slot is not None]
