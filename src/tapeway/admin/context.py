"""What the handlers of the admin API work with, and a cache of interaction counts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapeway.core.model.cassette import CassetteStat
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.inspection.known import KnownCassettes

if TYPE_CHECKING:
    from tapeway.admin.metrics import Metrics

_MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """Everything a handler may use."""

    broker: Broker
    journal: RequestJournal
    version: str
    proxy: str
    """The URL of the proxy for clients on this machine."""
    named_routes: Sequence[str]
    """The routes that the settings name."""
    record_command: str | None
    """The option: the command that records what was missed."""
    certificate: str | None
    """The file with the certificate of the admin listener, where it speaks TLS."""
    metrics: "Callable[[], Metrics]"
    counts: "InteractionCounts"
    known: KnownCassettes
    openapi: Callable[[], bytes]
    heartbeat_s: float


class InteractionCounts:
    """How many interactions unloaded cassettes hold.

    A store tells sizes without reading, but counting takes reading the whole cassette. So a count
    is remembered until the cassette changes.
    """

    def __init__(self) -> None:
        self._counts: dict[str, tuple[CassetteStat, int]] = {}

    def cached(self, name: str, stat: CassetteStat) -> int | None:
        """The count, if it is known and the cassette has not changed since."""
        count = self._counts.get(name)
        return count[1] if count is not None and count[0] == stat else None

    async def count(self, broker: Broker, name: str, stat: CassetteStat) -> int:
        """Count by reading the cassette. Raises StoreError if it cannot be read."""
        stored = await broker.source.read(name)
        count = 0 if stored is None else len(stored.interactions)
        if len(self._counts) >= _MAX_CACHED:
            self._counts.clear()
        self._counts[name] = (stat, count)
        return count
