"""What the handlers of the admin API work on."""

from dataclasses import dataclass

from tapeway.admin.census import Census
from tapeway.admin.instances import Instances
from tapeway.admin.metrics import Metrics
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal


@dataclass(frozen=True, slots=True)
class Console:
    """The broker and its journal, as seen from the admin listener."""

    broker: Broker
    journal: RequestJournal
    version: str
    metrics: Metrics
    census: Census
    openapi: bytes
    heartbeat_s: float
    instances: Instances
