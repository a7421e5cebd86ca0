"""The recordings that a store decoded last: a client with only misses costs little.

Each miss looks at the same recordings again. Recordings with unchanged documents are not decoded
again. They stay the same objects, and callers can remember computed values.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tapeway.core.model.interaction import AnyInteraction

Text = TypeVar("Text", str, bytes)


class LastDecoded(Generic[Text]):
    """Holds the recordings of one call: as many as a miss looks at, and no more than 8 MiB of bodies."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], tuple[Text, AnyInteraction]] = {}

    def items(
        self,
        name: str,
        documents: Iterable[tuple[int, Text]],
        decode: Callable[[Text, int], AnyInteraction],
    ) -> list[AnyInteraction]:
        """The interactions of these documents of a cassette, given with their indexes."""
        before, held = self._held, dict[tuple[str, int], tuple[Text, AnyInteraction]]()
        for index, text in documents:
            known = before.get((name, index))
            if known is None or known[0] != text:
                known = (text, decode(text, index))
            held[name, index] = known
        self._held = held
        return [item for _, item in held.values()]
