"""What is known of each recording of a cassette, by its index."""

from collections.abc import Iterator, MutableMapping
from typing import TypeVar, cast

T = TypeVar("T")

_MOST_MISSING = 64


class ByIndex(MutableMapping[int, T]):
    """A dictionary by index, in its order as far as there are no large gaps. No value is None.

    Nearly all indexes of a cassette follow each other: a list takes a quarter of the memory of a
    dictionary, of which each recording would have two.
    """

    __slots__ = ("_listed", "_missing", "_others")

    def __init__(self) -> None:
        self._listed: list[T | None] = []
        self._missing = 0
        """How many places of the list are empty."""
        self._others: dict[int, T] = {}
        """What is so far behind the end of the list that too many places would be empty."""

    def __len__(self) -> int:
        return len(self._listed) - self._missing + len(self._others)

    def __iter__(self) -> Iterator[int]:
        yield from [at for at, each in enumerate(self._listed) if each is not None]
        yield from list(self._others)

    def __getitem__(self, index: int) -> T:
        found = self._listed[index] if 0 <= index < len(self._listed) else self._others[index]
        if found is None:
            raise KeyError(index)
        return found

    def __setitem__(self, index: int, value: T) -> None:
        gap = index - len(self._listed)
        if not gap and not self._others:
            # Nearly every one.
            self._listed.append(value)
        elif 0 <= gap <= _MOST_MISSING:
            for each in range(index - gap, index):
                self._listed.append(self._others.pop(each, None))
                self._missing += self._listed[each] is None
            self._others.pop(index, None)
            self._listed.append(value)
        elif gap > 0:
            self._others[index] = value
        else:
            self._missing -= self._listed[index] is None
            self._listed[index] = value

    def __delitem__(self, index: int) -> None:
        if not 0 <= index < len(self._listed):
            del self._others[index]
        elif self._listed[index] is None:
            raise KeyError(index)
        else:
            self._listed[index] = None
            self._missing += 1

    def to_list(self) -> list[T]:
        """The values, at once: another thread may add and remove some."""
        if self._missing:
            listed = [each for each in self._listed if each is not None]
        else:
            # Nearly always, and copied in one step.
            listed = cast("list[T]", self._listed)
        return [*listed, *self._others.values()]
