"""Metrics in Prometheus' text format: the broker's counts and the resources of all processes.

They are collected on request, so serving pays nothing. The only label that grows with use is the
cassette's name, and at most a hundred of those appear.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tapeway.admin.processes import ServingProcesses
from tapeway.core.model.control import MODE_POLICIES, Outcome
from tapeway.engine.broker import Broker
from tapeway.engine.cassette_context import CassetteCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_NAMED = 100
OTHERS = "(others)"
"""No cassette can have this name."""
_NOT_SUMMED = frozenset({"process_start_time_seconds", "process_max_fds"})
_CPU = "process_cpu_seconds"
_OUTCOMES: tuple[Outcome, ...] = ("replayed", "recorded", "live", "miss", "error")


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self, broker: Broker, processes: ServingProcesses, version: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_ProcessCollector(processes))
        self._broker = _BrokerCollector(broker, processes, version)
        self._registry.register(self._broker)

    def text(self, loaded: Sequence[CassetteCounts] | None, *, can_record: bool) -> bytes:
        """The metrics as they are now; without those of cassettes where `loaded` is None."""
        self._broker.loaded, self._broker.can_record = loaded, can_record
        return generate_latest(self._registry)


class _ProcessCollector(Collector):
    """The resources of all processes together; what cannot be summed is that of the first."""

    def __init__(self, processes: ServingProcesses) -> None:
        self._processes = processes

    def collect(self) -> Iterator[Metric]:
        first, *others = self._processes.pids
        added: dict[str, float] = {_CPU: self._processes.past_cpu_s}
        for pid in others:
            for metric in _of_process(pid):
                added[metric.name] = added.get(metric.name, 0.0) + metric.samples[0].value
        for metric in _of_process(first):
            if metric.name not in _NOT_SUMMED:
                sample = metric.samples[0]
                metric.samples = [sample._replace(value=sample.value + added.get(metric.name, 0.0))]
            yield metric


def _of_process(pid: int) -> Iterator[Metric]:
    # Yields nothing for a process that has ended meanwhile.
    yield from ProcessCollector(pid=lambda: pid, registry=None).collect()


class _BrokerCollector(Collector):
    def __init__(self, broker: Broker, processes: ServingProcesses, version: str) -> None:
        self._broker = broker
        self._processes = processes
        self._version = version
        self.loaded: Sequence[CassetteCounts] | None = ()
        self.can_record = True

    def collect(self) -> Iterator[Metric]:
        broker = self._broker
        yield _info(self._version)
        yield self._requests()
        yield CounterMetricFamily(
            "tapeway_upstream_connections",
            "Connections to upstreams opened",
            value=self._processes.connections,
        )
        yield CounterMetricFamily("tapeway_takes", "Takes started", value=broker.takes)
        yield GaugeMetricFamily(
            "tapeway_recordings_in_flight",
            "Live calls in progress that will be recorded",
            value=self._processes.in_flight,
        )
        yield self._mode()
        if self.loaded is not None:
            yield _interactions(self.loaded)
            yield GaugeMetricFamily(
                "tapeway_cassettes_loaded", "Loaded cassettes", value=len(self.loaded)
            )
        yield GaugeMetricFamily(
            "tapeway_ready",
            "1 while /readyz is 200",
            value=int(self._is_ready()),
        )
        yield GaugeMetricFamily(
            "tapeway_draining", "1 while tapeway stops", value=int(broker.draining)
        )

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "tapeway_requests", "Proxied requests by outcome", labels=["outcome"]
        )
        for outcome in _OUTCOMES:
            family.add_metric([outcome], self._broker.journal.counts[outcome])
        return family

    def _is_ready(self) -> bool:
        serves = not self._broker.draining and self._processes.readiness_error() is None
        return serves and self.can_record

    def _mode(self) -> Metric:
        family = GaugeMetricFamily("tapeway_mode", "1 for the mode in force", labels=["mode"])
        for mode in MODE_POLICIES:
            family.add_metric([mode], int(mode == self._broker.mode))
        return family


def _interactions(loaded: Sequence[CassetteCounts]) -> Metric:
    family = GaugeMetricFamily(
        "tapeway_cassette_interactions",
        f"Interactions per loaded cassette; above {MAX_NAMED} cassettes the rest are summed",
        labels=["cassette"],
    )
    for cassette in loaded[:MAX_NAMED]:
        family.add_metric([cassette.name], cassette.interactions)
    if len(loaded) > MAX_NAMED:
        others = sum(each.interactions for each in loaded[MAX_NAMED:])
        family.add_metric([OTHERS], others)
    return family


def _info(version: str) -> Metric:
    family = GaugeMetricFamily("tapeway_build_info", "The version of tapeway", labels=["version"])
    family.add_metric([version], 1)
    return family
