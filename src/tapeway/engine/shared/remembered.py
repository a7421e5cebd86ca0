"""What one instance remembers of a shared store's cassettes, to ask the store less for each hit."""

from collections.abc import Sequence
from dataclasses import replace

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import CursorMove, CursorState
from tapeway.core.model.interaction import Interaction
from tapeway.engine.shared.views import CassetteInfo, View

MOST_REMEMBERED = 64 * 1024 * 1024
"""Bytes of recordings to remember; beyond that, all are forgotten."""

MOST_OF_A_VIEW = 256 * 1024
_OVERHEAD = 2048
"""What a recording takes in memory beside its bodies, roughly."""


class RememberedViews:
    """What was found in one take of each cassette, as long as the cassette is unchanged.

    What is remembered may be out of date: the store compares mark and cursor when it moves that.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], Remembered] = {}
        self.size = 0
        """Bytes that are remembered, roughly."""

    def find(self, info: CassetteInfo, take: int, name: str, keys: Sequence[bytes]) -> View | None:
        """What was found under all of these keys.

        None where that is not known any more, or a cursor of theirs is being moved.
        """
        known = self.of(info, take, name)
        if known is None or not all(key in known.turns for key in keys):
            return None
        if any(isinstance(known.turns[key], CursorMove) for key in keys):
            return None
        return known.view

    def of(self, info: CassetteInfo, take: int, name: str) -> "Remembered | None":
        """All that was found in a take of a cassette, None where nothing is known."""
        known = self._of.get((name, take))
        return known if known is not None and known.info is info else None

    def use(self, view: View, key: bytes) -> View:
        """The same with the cursor of a key. Until it is `moved`, nobody else finds the key."""
        turn = self._of[view.cassette.name, view.cassette.take.number].turns.pop(key)
        return replace(view, turns={key: turn} if isinstance(turn, CursorState) else {})

    def moved(self, view: View, key: bytes, turn: CursorState) -> None:
        """Note where a cursor is now."""
        known = self._of.get((view.cassette.name, view.cassette.take.number))
        if known is not None and known.view is view:
            known.turns[key] = turn

    def add(
        self, info: CassetteInfo, found: View, keys: Sequence[bytes], key: bytes, turn: CursorState
    ) -> None:
        """Remember what was found under these keys, of which the cursor of `key` was moved."""
        size = _size_of(found)
        if key not in keys or found.mark is None or info.has_unrouted or size > MOST_OF_A_VIEW:
            return
        place = found.cassette.name, found.cassette.take.number
        if self.size + size > MOST_REMEMBERED:
            self.clear()
        known = self._of.get(place)
        if known is None or known.view.mark != found.mark or known.info is not info:
            known = self._of[place] = Remembered(info, found)
        for each in keys:
            now = turn if each == key else found.turns.get(each)
            known.view.cassette.restore(each, found.cassette, None if now is None else now.state)
            known.turns[each] = now
        self.size += size

    def clear(self) -> None:
        """Forget all."""
        self._of.clear()
        self.size = 0


class Remembered:
    """What was found in one take of a cassette: the recordings, and the cursors of their keys.

    In place of a cursor there is the step that is moving it. `view` has its state after that step.
    """

    def __init__(self, info: CassetteInfo, found: View) -> None:
        held, nothing = found.cassette, StoredCassette(info.head)
        cassette = CassetteIndex(
            held.name, nothing, take=held.take.number, other_routes=info.routes
        )
        self.info = info
        self.view = View(cassette, {}, found.mark)
        self.turns: dict[bytes, CursorState | CursorMove | None] = {}


def _size_of(view: View) -> int:
    size = _OVERHEAD
    for each in view.cassette:
        if not isinstance(each, Interaction) or each.request.file or each.response.file:
            return MOST_OF_A_VIEW + 1
        size += _OVERHEAD + len(each.request.body) + each.response.size
    return size
