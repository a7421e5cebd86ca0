"""The recordings that a store decoded last: the next WebSocket connection looks at the same ones.

Recordings with unchanged documents are not decoded again. They stay the same objects, and callers
can remember computed values.
"""

from collections.abc import Callable, Iterable

from tapeway.core.model.interaction import AnyInteraction


class LastDecoded:
    """Holds the recordings of one call, which bounds them in number and bytes."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], tuple[bytes, AnyInteraction]] = {}

    def items(
        self,
        name: str,
        documents: Iterable[tuple[int, bytes]],
        decode: Callable[[bytes, int], AnyInteraction],
    ) -> list[AnyInteraction]:
        """The interactions of these documents of a cassette, given with their indexes."""
        before, held = self._held, dict[tuple[str, int], tuple[bytes, AnyInteraction]]()
        for index, text in documents:
            known = before.get((name, index))
            if known is None or known[0] != text:
                known = (text, decode(text, index))
            held[name, index] = known
        self._held = held
        return [item for _, item in held.values()]
