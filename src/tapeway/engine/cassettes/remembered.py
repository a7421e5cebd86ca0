"""What one instance remembers of a shared store's cassettes, to ask the store less for each hit."""

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import CursorMove, CursorState
from tapeway.core.model.interaction import Interaction
from tapeway.engine.cassettes.source import NO_TURNS, CassetteInfo, Search, View

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

    def find(self, search: Search) -> View | None:
        """What was found under all keys of a search.

        None where that is not known any more, or a cursor of theirs is being moved.
        """
        known = self.of(search.info, search.take, search.name)
        if known is None:
            return None
        turns = known.turns
        for key in search.keys:
            if key not in turns or isinstance(turns[key], CursorMove):
                return None
        return View(known.cassette, search, NO_TURNS, known.mark, turns)

    def of(self, info: CassetteInfo | None, take: int, name: str) -> "Remembered | None":
        """All that was found in a take of a cassette, None where nothing is known."""
        known = self._of.get((name, take))
        return known if known is not None and known.info is info else None

    def add(self, view: View, key: bytes, turn: CursorState) -> None:
        """Remember what was found under the keys of a search; the cursor of `key` was moved."""
        search, size = view.search, _size_of(view)
        keys, info = search.keys, search.info
        if key not in keys or view.mark is None or info is None:
            return
        if info.has_unrouted or size > MOST_OF_A_VIEW:
            return
        place = search.name, search.take
        if self.size + size > MOST_REMEMBERED:
            self.clear()
        known = self._of.get(place)
        if known is None or known.mark != view.mark or known.info is not info:
            known = self._of[place] = Remembered(info, view)
        for each in keys:
            now = turn if each == key else view.turns.get(each)
            known.cassette.restore(each, view.cassette, None if now is None else now.state)
            known.turns[each] = now
        self.size += size

    def clear(self) -> None:
        """Forget all."""
        self._of.clear()
        self.size = 0


class Remembered:
    """What was found in one take of a cassette: the recordings, and the cursors of their keys.

    In place of a cursor there is the step that is moving it. The cassette has its state after that
    step.
    """

    def __init__(self, info: CassetteInfo, view: View) -> None:
        held, nothing = view.cassette, StoredCassette(info.head)
        take = held.take.number
        cassette = CassetteIndex(held.name, nothing, take=take, other_routes=info.routes)
        self.info = info
        self.cassette = cassette
        self.mark = view.mark
        self.turns: dict[bytes, CursorState | CursorMove | None] = {}


def _size_of(view: View) -> int:
    size = _OVERHEAD
    for each in view.cassette:
        if not isinstance(each, Interaction) or each.request.file or each.response.file:
            return MOST_OF_A_VIEW + 1
        size += _OVERHEAD + len(each.request.body) + each.response.size
    return size
