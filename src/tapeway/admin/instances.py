"""The processes that serve, as the admin API sees them: one, or several that are spoken of as one."""

import os
from collections.abc import Sequence
from typing import Protocol

from tapeway.engine.broker import Broker
from tapeway.errors import StoreAway, StorePoisoned, TapewayError
from tapeway.ports import CassetteStore


class Instances(Protocol):
    """What is not known of them by the broker alone."""

    @property
    def pids(self) -> Sequence[int]:
        """Their processes, the one that answers admin calls among them."""

    @property
    def past_cpu_s(self) -> float:
        """Seconds of CPU time that processes took which are no more."""

    @property
    def connections(self) -> int:
        """How many connections to upstreams were ever opened."""

    @property
    def in_flight(self) -> int:
        """Live calls under way that will be recorded."""

    def trouble(self) -> TapewayError | None:
        """What keeps them from their work, if something does."""

    async def gather(self) -> None:
        """Return when all that was answered until now is counted and in the journal."""

    async def quiet(self, cassette: str) -> None:
        """Return when no live call of another process records on this cassette."""


class Alone:
    """The one process there is: its broker knows all."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def pids(self) -> Sequence[int]:
        return (os.getpid(),)

    @property
    def past_cpu_s(self) -> float:
        return 0.0

    @property
    def connections(self) -> int:
        return self._broker.responder.connections

    @property
    def in_flight(self) -> int:
        return self._broker.in_flight

    def trouble(self) -> TapewayError | None:
        return trouble_of(self._broker.store)

    async def gather(self) -> None:
        return

    async def quiet(self, cassette: str) -> None:
        return


def trouble_of(store: CassetteStore) -> TapewayError | None:
    """Why nothing can be recorded into a store, or told from it."""
    health, shared = store.capabilities.write_health, store.capabilities.shared
    if health is not None and health.poisoned:
        return StorePoisoned(
            f"a write to {store.url} failed and left it in an unknown state: nothing is recorded "
            "until the cassette is ejected or tapeway is started anew",
            code="store_poisoned",
        )
    if shared is not None and not shared.in_touch:
        return StoreAway(
            f"{store.url} has not answered for too long to know what is in force: see whether it "
            "runs; tapeway goes on by itself once it does"
        )
    return None
