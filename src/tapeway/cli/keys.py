"""Whether a store finds each interaction where its request says, and nothing else there."""

from dataclasses import dataclass

from tapeway.core.cassette.index import found_under
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import Held
from tapeway.core.model.interaction import exchange_of
from tapeway.ports import Indexed


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an interaction, by its index, or with all of a cassette."""

    index: int | None
    reason: str


class Keys:
    """Goes along with a cassette, in memory for the keys of those that have not gone by yet."""

    def __init__(self, store: Indexed, name: str, rules: Rules) -> None:
        self._store = store
        self._name = name
        self._rules = rules
        self._waiting: dict[bytes, set[int]] = {}

    async def problems(self, item: Held) -> list[Problem]:
        """What is wrong with where this one is found. Raises StoreError."""
        exchange = exchange_of(item)
        if exchange is None:
            return []
        for key in found_under(exchange, self._rules):
            if key not in self._waiting:
                found = await self._store.find(self._name, [key])
                self._waiting[key] = {each.item.index for each in found}
            if item.index not in self._waiting[key]:
                return [Problem(item.index, "the store does not find it by its request")]
            self._waiting[key].remove(item.index)
            if not self._waiting[key]:
                del self._waiting[key]
        return []

    def left(self) -> list[Problem]:
        """Those that were found under a key which is not theirs, once all have gone by."""
        left = sorted({index for indexes in self._waiting.values() for index in indexes})
        return [
            Problem(index, "the store finds it by a request it does not have") for index in left
        ]
