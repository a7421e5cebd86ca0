"""Which index an interaction gets that comes with one of its own.

Whoever records into a cassette from afar numbers what it records, and its recordings may come in
another order than they were numbered. An index that was passed over is still to be had.
"""

from weakref import WeakKeyDictionary

from tapeway.core.cassette.index import CassetteIndex


class Numbering:
    """Gives out indexes of cassettes that are in."""

    def __init__(self) -> None:
        self._gaps: WeakKeyDictionary[CassetteIndex, list[range]] = WeakKeyDictionary()

    def index(self, cassette: CassetteIndex, wanted: int | None) -> int:
        """The one that is wanted, if nobody ever had it, or else a new one."""
        if wanted is not None and self._take(cassette, wanted):
            return wanted
        following = cassette.reserve()
        if wanted is None or wanted <= following:
            return following
        self._gaps.setdefault(cassette, []).append(range(following, wanted))
        cassette.number_from(wanted + 1)
        return wanted

    def _take(self, cassette: CassetteIndex, wanted: int) -> bool:
        gaps = self._gaps.get(cassette, [])
        for place, gap in enumerate(gaps):
            if wanted in gap:
                rest = range(gap.start, wanted), range(wanted + 1, gap.stop)
                gaps[place : place + 1] = [each for each in rest if each]
                return True
        return False
