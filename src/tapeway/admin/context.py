"""What the handlers of the admin API work on.

How many interactions a cassette holds that is not in.

A store tells sizes without reading, but a count takes reading the whole. So counts are remembered
until the cassette changes, and one answer reads no more than a budget.
"""

from dataclasses import dataclass

from tapeway.admin.instances import Instances
from tapeway.admin.metrics import Metrics
from tapeway.core.model.cassette import CassetteStat
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal

MIB = 1024 * 1024
BUDGET = 64 * MIB
_REMEMBERED = 10_000


class Census:
    """Counts by name, each with the state of the cassette it was taken in."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[CassetteStat, int]] = {}

    def known(self, name: str, stat: CassetteStat) -> int | None:
        """The count, if it was taken and nothing changed since."""
        taken = self._counts.get(name)
        return taken[1] if taken is not None and taken[0] == stat else None

    async def take(self, broker: Broker, name: str, stat: CassetteStat) -> int:
        """Count by reading. Raises StoreError for a cassette that cannot be read."""
        stored = await broker.read(name)
        count = 0 if stored is None else len(stored.interactions)
        if len(self._counts) >= _REMEMBERED:
            self._counts.clear()
        self._counts[name] = (stat, count)
        return count


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The broker and its journal, as seen from the admin listener."""

    broker: Broker
    journal: RequestJournal
    version: str
    metrics: Metrics
    census: Census
    openapi: bytes
    heartbeat_s: float
    instances: Instances
