"""The order of a cassette's interactions while recordings come in.

A recording takes the place of the first one it supersedes, so that recording anew changes a file
only where an answer changed. One that supersedes nothing has the place of its index, which is
reserved when its request comes: of two at the same time the one that was asked first is first.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class RecordingOrder(Generic[T]):
    """Items by index, in order; `next_free` is an index above all there ever were.

    Adding one costs the same however many there are.
    """

    def __init__(self, items: Iterable[tuple[int, T]] = ()) -> None:
        self._items: dict[int, T] = {}
        # Those that were there at first are before all others, whatever their indexes.
        self._places: dict[int, tuple[int, int]] = {}
        self.next_free = 0
        for place, (index, item) in enumerate(items):
            self._put(index, item, (0, place))

    def __contains__(self, index: int) -> bool:
        return index in self._items

    def get(self, index: int) -> T | None:
        return self._items.get(index)

    def add(self, index: int, item: T, supersedes: Iterable[int] = ()) -> None:
        gone = {each for each in supersedes if each in self._items}
        for each in gone:
            del self._items[each]
        freed = [self._places.pop(each) for each in gone]
        self._put(index, item, min(freed, default=(1, index)))

    def items(self) -> list[tuple[int, T]]:
        places = self._places
        return sorted(self._items.items(), key=lambda each: (places[each[0]], each[0]))

    def _put(self, index: int, item: T, place: tuple[int, int]) -> None:
        self._items[index], self._places[index] = item, place
        self.next_free = max(self.next_free, index + 1)
