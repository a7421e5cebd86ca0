"""A cassette in memory: an index from match key to recordings, and a cursor for each key.

Finding costs one dictionary look-up however many recordings there are. A take is one run through
the cassette: cursors start at its beginning, and what it recorded first replaces what earlier
takes held for the same request.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tapeway.core.matching import credential_mark, request_key
from tapeway.core.model import (
    CassetteHead,
    ForeignInteraction,
    Interaction,
    Recording,
    StoredCassette,
)
from tapeway.core.modes import Repeats


@dataclass(slots=True)
class Take:
    """What one run has asked for, been given and recorded so far."""

    number: int
    cursors: dict[bytes, int] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    recorded: set[tuple[bytes, bytes]] = field(default_factory=set)
    marks: dict[bytes, bytes] = field(default_factory=dict)

    def ask(self, cursor: bytes, mark: bytes) -> None:
        """Note a turn, and with the first one the credential it was asked with."""
        turn = self.cursors.get(cursor, 0)
        self.cursors[cursor] = turn + 1
        if mark and turn == 0:
            self.marks[cursor] = mark

    def asked_with(self, cursor: bytes) -> bytes | None:
        """The credential of the first turn, None where there was none yet."""
        return self.marks.get(cursor, b"") if cursor in self.cursors else None


class Cassette:
    """The recordings of one cassette while it is loaded."""

    def __init__(self, name: str, stored: StoredCassette, *, take: int) -> None:
        self.name = name
        self.head: CassetteHead = stored.head
        self.take = Take(take)
        self._interactions: dict[int, Interaction | ForeignInteraction] = {}
        self._by_key: dict[bytes, list[Interaction]] = {}
        self._key_of: dict[int, bytes] = {}
        self._take_of: dict[int, int] = {}
        self._by_mark: dict[bytes, dict[bytes, list[Interaction]]] = {}
        self._routes: Counter[bytes] = Counter()
        self._next = 0
        for interaction in stored.interactions:
            self._insert(interaction)

    def __len__(self) -> int:
        return len(self._interactions)

    def __iter__(self) -> Iterator[Interaction | ForeignInteraction]:
        return iter([self._interactions[index] for index in sorted(self._interactions)])

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    def get(self, index: int) -> Interaction | ForeignInteraction | None:
        return self._interactions.get(index)

    def has_route(self, route: str) -> bool:
        """Whether any recording was made on this route."""
        return self._routes[route.encode()] > 0

    def next(
        self, key: bytes, repeats: Repeats, mark: bytes = b"", *, could_ask: bool = False
    ) -> Interaction | None:
        """The recording whose turn it is, moving the cursor, or None where there is none (left).

        `mark` is the credential it is asked with. One other than the recorded one is taken for the
        same request: another run has another API key. But while the upstream could be asked, a
        second value within one take is a second page, and not for the first one's answer.
        """
        found = self._alike(key, mark)
        if not found or (could_ask and self._is_other(key, mark)):
            return None
        cursor = self._cursor(key, mark)
        turn = position = self.take.cursors.get(cursor, 0)
        if turn >= len(found):
            if repeats == "miss":
                return None
            position = turn % len(found) if repeats == "cycle" else -1
        self.take.ask(cursor, mark)
        self.take.touched.add(found[position].index)
        return found[position]

    def count(self, key: bytes, mark: bytes = b"") -> int:
        """How many recordings answer this key."""
        return len(self._alike(key, mark))

    def reserve(self) -> int:
        """An index for a recording to come; one that never comes leaves a gap."""
        index, self._next = self._next, self._next + 1
        return index

    def recording(
        self,
        interaction: Interaction,
        key: bytes,
        take: Take,
        *,
        replaces: bool,
        index: int | None = None,
    ) -> Recording:
        """The step that records an answer in a take, under a reserved or a new index.

        Nothing changes yet.

        Until a take has recorded a first durable answer, each step replaces what earlier takes
        held: a failed one leaves that to the next.
        """
        superseded: tuple[int, ...] = ()
        mark = credential_mark(interaction.request)
        if replaces and (key, mark) not in take.recorded:
            superseded = tuple(
                each.index
                for each in self._alike(key, mark)
                if self._take_of.get(each.index, 0) < take.number
            )
        index = self.reserve() if index is None else index
        return Recording(replace(interaction, index=index), superseded)

    def add(self, recording: Recording, key: bytes, take: Take) -> None:
        """Take in a recording that is durable; its request counts as the first to be given it."""
        for index in recording.supersedes:
            self._remove(index)
        index = recording.interaction.index
        self._place(recording.interaction, key)
        self._take_of[index] = take.number
        mark = credential_mark(recording.interaction.request)
        take.recorded.add((key, mark))
        take.touched.add(index)
        take.ask(self._cursor(key, mark), mark)

    def start_take(self, number: int) -> None:
        """Cursors back to the beginning, everything unused again."""
        self.take = Take(number)

    def unused(self) -> list[int]:
        """Indexes of recordings this take has not touched."""
        return sorted(index for index in self._key_of if index not in self.take.touched)

    def unused_count(self) -> int:
        """How many those are, at a cost that grows with what was touched and not with the rest."""
        return len(self._key_of) - len(self._key_of.keys() & self.take.touched)

    def duplicates(self) -> list[list[int]]:
        """Indexes that answer the same request, where there are several."""
        return [[each.index for each in found] for found in self._by_key.values() if len(found) > 1]

    def stored(self, *, touched_only: bool = False) -> StoredCassette:
        """The cassette as a store keeps it; optionally without what this take did not touch."""
        kept = [
            interaction
            for interaction in self
            if not touched_only
            or isinstance(interaction, ForeignInteraction)
            or interaction.index in self.take.touched
        ]
        return StoredCassette(self.head, tuple(kept))

    def _insert(self, interaction: Interaction | ForeignInteraction) -> None:
        self._next = max(self._next, interaction.index + 1)
        if isinstance(interaction, ForeignInteraction):
            self._interactions[interaction.index] = interaction
        else:
            self._place(interaction, request_key(interaction.request))

    def _tells_apart(self, key: bytes) -> bool:
        """Whether this key was recorded with several credentials, so that they are part of it."""
        return len(self._by_mark.get(key, ())) > 1

    def _cursor(self, key: bytes, mark: bytes) -> bytes:
        return key + mark if self._tells_apart(key) else key

    def _is_other(self, key: bytes, mark: bytes) -> bool:
        recorded_with = self._by_mark.get(key)
        if mark in (recorded_with or (b"",)):
            return False
        return self.take.asked_with(key) not in (None, mark)

    def _alike(self, key: bytes, mark: bytes) -> list[Interaction]:
        if self._tells_apart(key):
            return self._by_mark[key].get(mark, [])
        return self._by_key.get(key, [])

    def _place(self, interaction: Interaction, key: bytes) -> None:
        self._interactions[interaction.index] = interaction
        mark = credential_mark(interaction.request)
        if mark and key not in self._by_mark:
            # Most keys never carry a credential, and need no second index.
            unmarked = self._by_key.get(key)
            self._by_mark[key] = {b"": list(unmarked)} if unmarked else {}
        # In index order, so that a reload serves repeats as this process did.
        insort(self._by_key.setdefault(key, []), interaction, key=_index)
        if key in self._by_mark:
            insort(self._by_mark[key].setdefault(mark, []), interaction, key=_index)
        self._key_of[interaction.index] = key
        self._routes[_route(key)] += 1

    def _remove(self, index: int) -> None:
        key = self._key_of.pop(index, None)
        if key is None:
            return
        removed = self._interactions.pop(index)
        self._take_of.pop(index, None)
        self._routes[_route(key)] -= 1
        _drop(self._by_key, key, index)
        if key in self._by_mark and isinstance(removed, Interaction):
            _drop(self._by_mark[key], credential_mark(removed.request), index)
            if not self._by_mark[key]:
                del self._by_mark[key]


def _drop(lists: dict[bytes, list[Interaction]], key: bytes, index: int) -> None:
    found = lists[key]
    del found[bisect_left(found, index, key=_index)]
    if not found:
        del lists[key]


def _index(interaction: Interaction) -> int:
    return interaction.index


def _route(key: bytes) -> bytes:
    return key[: key.index(b"\0")]
