"""The titles of a cassette, kept for lists to be searched, filtered and ordered at once."""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Literal, cast

from tapeway.cooperative import Yielding
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import AnyInteraction
from tapeway.inspection.search import MOST_SEARCHED, searchable_text
from tapeway.inspection.summary import title

Show = Literal["failed", "unused", "streamed", "unmarked"]
Order = Literal["slowest", "tokens", "largest"]


@dataclass(frozen=True, slots=True)
class ListedRecording:
    """A recording in a list: the title as JSON, and the values for filters and orders."""

    index: int
    text: bytes
    named: str
    """The text of the title, apart from `says`: an arrow in one text would double its bytes."""
    says: str
    failed: bool
    streamed: bool
    unmarked: bool
    latency_ms: float
    tokens: int
    response_bytes: int

    def written(self, unused: Set[int] | None) -> bytes:
        """The title as the API returns it."""
        is_unused = None if unused is None else self.index in unused
        return b'%b,"unused":%b}' % (self.text[:-1], dump(is_unused))

    @property
    def size(self) -> int:
        return len(self.text) + sys.getsizeof(self.named) + sys.getsizeof(self.says)

    def has(self, words: str) -> bool:
        return words in self.says or words in self.named


_ORDERS: Mapping[Order, Callable[[ListedRecording], float]] = {
    "slowest": lambda call: -call.latency_ms,
    "tokens": lambda call: -call.tokens,
    "largest": lambda call: -call.response_bytes,
}


@dataclass(frozen=True, slots=True)
class TitleQuery:
    """The filters and the order of a list; by default the order of the cassette."""

    text: str = ""
    show: Show | None = None
    order: Order | None = None

    @property
    def is_plain(self) -> bool:
        return not self.text and self.show is None and self.order is None


class Titles:
    """The titles of one version of a cassette."""

    def __init__(self, most_searched: int = MOST_SEARCHED) -> None:
        """Recordings beyond so many bytes of text are found by their titles alone."""
        self._listed: list[ListedRecording] = []
        self._indexes: list[int] = []
        self._room = most_searched
        self.unsearched = 0
        """Recordings whose texts found no room."""
        self.size = 0

    def add(self, items: list[AnyInteraction]) -> None:
        """Add recordings, whose list is emptied; call it in a thread."""
        yielding = Yielding()
        items.sort(key=lambda item: -item.index)
        while items:
            # Each is freed at once: all together would keep other threads waiting.
            listed = self._listed_recording(items.pop())
            self._listed.append(listed)
            self._indexes.append(listed.index)
            self.size += listed.size
            yielding.step()

    def page(
        self, query: TitleQuery, after: int | None, limit: int, unused: Set[int] | None
    ) -> bytes:
        """A page as the API returns it; `after` is an index in the order of the query."""
        if query.is_plain:
            listed, start = self._listed, 0
            if after is not None:
                start = bisect_right(self._indexes, after)
        else:
            listed = self._matching(query, unused or frozenset())
            places = (at for at, call in enumerate(listed) if call.index == after)
            start = 0 if after is None else next(places, len(listed) - 1) + 1
        page = listed[start : start + limit]
        rest: dict[str, Json] = {
            "total": len(self._listed),
            "found": None if query.is_plain or after is not None else _indexes(listed),
            "unsearched": self.unsearched if query.text else 0,
            "next": page[-1].index if start + limit < len(listed) else None,
        }
        titles = b",".join([item.written(unused) for item in page])
        return b'{"titles":[%b],%b' % (titles, dump(rest)[1:])

    def _listed_recording(self, item: AnyInteraction) -> ListedRecording:
        titled = title(item)
        usage = titled["usage"]
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else 0
        status = titled["status"]
        says = searchable_text(item)
        if (size := sys.getsizeof(says)) <= self._room:
            self._room -= size
        else:
            says = ""
            self.unsearched += 1
        return ListedRecording(
            item.index,
            dump(titled),
            f"{titled['summary']}\0{titled['path']}".casefold(),
            says,
            titled["failure"] is not None or (isinstance(status, int) and status >= 400),
            titled["streamed"] is True,
            titled["unmarked"] is True,
            float(cast("float | None", titled["latency_ms"]) or 0),
            tokens if isinstance(tokens, int) else 0,
            cast("int | None", titled["response_bytes"]) or 0,
        )

    def _matching(self, query: TitleQuery, unused: Set[int]) -> list[ListedRecording]:
        shown: Iterable[ListedRecording] = self._listed
        if query.show == "unused":
            shown = [call for call in shown if call.index in unused]
        elif query.show is not None:
            shown = [call for call in shown if getattr(call, query.show)]
        if query.text:
            words = query.text.casefold()
            shown = [call for call in shown if call.has(words)]
        return [*shown] if query.order is None else sorted(shown, key=_ORDERS[query.order])


def _indexes(listed: Iterable[ListedRecording]) -> list[Json]:
    return [call.index for call in listed]
