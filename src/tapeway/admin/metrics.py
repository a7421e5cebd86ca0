"""The broker's counts as Prometheus reads them.

Read when asked for, so the hot path pays nothing. The only label that grows with use is the
cassette's name, and of those no more than a hundred appear.

What the processes that serve take of the machine, as Prometheus reads it of one.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tapeway.admin.instances import Instances
from tapeway.core.model.control import MODE_POLICIES, Outcome
from tapeway.engine.broker import Broker
from tapeway.engine.cassette_context import CassetteCounts

_OF_ONE = frozenset({"process_start_time_seconds", "process_max_fds"})
_CPU = "process_cpu_seconds"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAMED = 100

OTHERS = "(others)"
"""No cassette can have this name."""
_OUTCOMES: tuple[Outcome, ...] = ("replayed", "recorded", "live", "miss", "error")


class Processes(Collector):
    """All of them together; of what cannot be added, that of the process which answers."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def collect(self) -> Iterator[Metric]:
        first, *others = self._instances.pids
        added: dict[str, float] = {_CPU: self._instances.past_cpu_s}
        for pid in others:
            for metric in _of(pid):
                added[metric.name] = added.get(metric.name, 0.0) + metric.samples[0].value
        for metric in _of(first):
            if metric.name not in _OF_ONE:
                sample = metric.samples[0]
                metric.samples = [sample._replace(value=sample.value + added.get(metric.name, 0.0))]
            yield metric


def _of(pid: int) -> Iterator[Metric]:
    """None of one that has ended meanwhile."""
    yield from ProcessCollector(pid=lambda: pid, registry=None).collect()


class Metrics:
    """The processes and their broker, in a registry of their own."""

    def __init__(self, broker: Broker, instances: Instances, version: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(Processes(instances))
        self._broker = _BrokerCollector(broker, instances, version)
        self._registry.register(self._broker)

    def text(self, loaded: Sequence[CassetteCounts] | None) -> bytes:
        """All of them, as they are now; `loaded` are the cassettes that are in, if it is known."""
        self._broker.loaded = loaded
        return generate_latest(self._registry)


class _BrokerCollector(Collector):
    def __init__(self, broker: Broker, instances: Instances, version: str) -> None:
        self._broker = broker
        self._instances = instances
        self._version = version
        self.loaded: Sequence[CassetteCounts] | None = ()

    def collect(self) -> Iterator[Metric]:
        broker = self._broker
        yield _info(self._version)
        yield self._requests()
        yield CounterMetricFamily(
            "tapeway_upstream_connections",
            "Connections to upstreams ever opened",
            value=self._instances.connections,
        )
        yield CounterMetricFamily("tapeway_takes", "Takes ever started", value=broker.takes)
        yield GaugeMetricFamily(
            "tapeway_recordings_in_flight",
            "Live calls under way that will be recorded",
            value=self._instances.in_flight,
        )
        yield self._mode()
        if self.loaded is not None:
            yield _interactions(self.loaded)
            yield GaugeMetricFamily(
                "tapeway_cassettes_loaded", "Cassettes that are in", value=len(self.loaded)
            )
        yield GaugeMetricFamily(
            "tapeway_ready",
            "1 while /readyz is 200",
            value=int(not broker.draining and self._instances.trouble() is None),
        )
        yield GaugeMetricFamily(
            "tapeway_draining", "1 while the process is stopping", value=int(broker.draining)
        )

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "tapeway_requests", "Proxied requests by how they ended", labels=["outcome"]
        )
        for outcome in _OUTCOMES:
            family.add_metric([outcome], self._broker.counts[outcome])
        return family

    def _mode(self) -> Metric:
        family = GaugeMetricFamily("tapeway_mode", "1 for the mode in force", labels=["mode"])
        for mode in MODE_POLICIES:
            family.add_metric([mode], int(mode == self._broker.mode))
        return family


def _interactions(loaded: Sequence[CassetteCounts]) -> Metric:
    family = GaugeMetricFamily(
        "tapeway_cassette_interactions",
        f"Interactions of a cassette that is in; beyond {NAMED} of those, of the rest together",
        labels=["cassette"],
    )
    for cassette in loaded[:NAMED]:
        family.add_metric([cassette.name], cassette.interactions)
    if len(loaded) > NAMED:
        others = sum(each.interactions for each in loaded[NAMED:])
        family.add_metric([OTHERS], others)
    return family


def _info(version: str) -> Metric:
    family = GaugeMetricFamily("tapeway_build_info", "The version that runs", labels=["version"])
    family.add_metric([version], 1)
    return family
