"""The fixture `cassette`: the cassette of one test, with the requests of the code under test."""

from typing import Any

from ..embedded.deck import DeckMode
from .connection import Connection
from .recorder import TestTake

_MOST_CALLS = 1000


class TestCassette:
    """The cassette of one test; `active` is False where the run goes without tapeway."""

    __test__ = False

    def __init__(self, name: str, connection: Connection | None, take: TestTake | None) -> None:
        self.name = name
        self._connection = connection
        self._take = take

    @property
    def active(self) -> bool:
        """Whether requests go through tapeway."""
        return self._connection is not None

    @property
    def mode(self) -> DeckMode | None:
        """The mode of this test's requests."""
        return None if self._take is None else self._take.mode

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The requests of this test until now, oldest first: method, path, headers, body."""
        if self._connection is None or self._take is None:
            return []
        deck, slot = self._connection.deck, self._connection.slot
        requests = deck.requests(slot, since=self._take.first)
        return [request for request in requests if self._take.owns(request["take"])]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The journal entries of this test's requests until now, oldest first."""
        if self._connection is None or self._take is None:
            return []
        deck, slot = self._connection.deck, self._connection.slot
        journal = deck.journal(slot=slot, since=self._take.first, limit=_MOST_CALLS)
        return [entry for entry in reversed(journal) if self._take.owns(entry["take"])]
