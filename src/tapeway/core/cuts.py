"""Where the pieces of a large body ended and when they came, packed: there may be a million."""

from array import array
from collections.abc import Iterable, Iterator


class Cuts:
    """Pairs of milliseconds and bytes, in order; grows while a body is collected."""

    __slots__ = ("_lengths", "_times")

    def __init__(self, pairs: Iterable[tuple[float, int]] = ()) -> None:
        self._times = array("d")
        self._lengths = array("Q")
        for at_ms, length in pairs:
            self.add(at_ms, length)

    def add(self, at_ms: float, length: int) -> None:
        self._times.append(at_ms)
        self._lengths.append(length)

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, index: int) -> tuple[float, int]:
        return self._times[index], self._lengths[index]

    def __iter__(self) -> Iterator[tuple[float, int]]:
        return zip(self._times, self._lengths, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cuts):
            return NotImplemented
        return self._times == other._times and self._lengths == other._lengths

    def __hash__(self) -> int:
        return hash((self._times.tobytes(), self._lengths.tobytes()))

    def __repr__(self) -> str:
        return f"<{len(self)} cuts of {self.total} bytes>"

    @property
    def total(self) -> int:
        """How many bytes they are together."""
        return sum(self._lengths)
