"""Metrics in Prometheus' text format: the broker's counts and the resources of the process.

Metrics are made on request from the counts of the journal. The only label that grows with use is
the cassette's name, and at most a hundred names appear.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tapeway.core.model.control import MODE_POLICIES, Outcome
from tapeway.engine.broker import Broker
from tapeway.engine.cassettes.context import CassetteCounts
from tapeway.engine.journal import (
    BUCKETS_MS,
    MAX_NAMED,
    OTHERS,
    Measure,
    RequestJournal,
)

_OUTCOMES: tuple[Outcome, ...] = ("replayed", "recorded", "live", "miss", "error")
_FROM_UPSTREAM = frozenset({"recorded", "live"})
_BOUNDS = (*(f"{ms / 1000:g}" for ms in BUCKETS_MS), "+Inf")


class Metrics:
    """All metrics, in a separate registry."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, broker: Broker, version: str) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._broker = _BrokerCollector(broker, version)
        self._registry.register(self._broker)

    def text(self, loaded: Sequence[CassetteCounts] | None, *, is_ready: bool) -> bytes:
        """The metrics as they are now; without those of cassettes where `loaded` is None."""
        self._broker.loaded, self._broker.is_ready = loaded, is_ready
        return generate_latest(self._registry)


class _BrokerCollector(Collector):
    def __init__(self, broker: Broker, version: str) -> None:
        self._broker = broker
        self._version = version
        self.loaded: Sequence[CassetteCounts] | None = ()
        self.is_ready = True

    def collect(self) -> Iterator[Metric]:
        broker = self._broker
        yield _info(self._version)
        yield _requests(broker.journal)
        yield _durations(broker.journal)
        yield from _bodies(broker.journal)
        yield CounterMetricFamily(
            "tapeway_store_errors",
            "Requests that failed because of the store",
            value=broker.journal.store_errors,
        )
        yield CounterMetricFamily(
            "tapeway_upstream_connections",
            "Connections to upstreams opened",
            value=broker.recorder.responder.connections,
        )
        yield CounterMetricFamily("tapeway_takes", "Takes started", value=broker.takes)
        yield GaugeMetricFamily(
            "tapeway_recordings_in_flight",
            "Live calls in progress that will be recorded",
            value=broker.in_flight,
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
            value=int(self.is_ready),
        )
        yield GaugeMetricFamily(
            "tapeway_draining", "1 while tapeway stops", value=int(broker.draining)
        )

    def _mode(self) -> Metric:
        family = GaugeMetricFamily("tapeway_mode", "1 for the mode in force", labels=["mode"])
        for mode in MODE_POLICIES:
            family.add_metric([mode], int(mode == self._broker.mode))
        return family


def _requests(journal: RequestJournal) -> Metric:
    family = CounterMetricFamily(
        "tapeway_requests",
        "Proxied requests by outcome, route, status class and cassette; above "
        f"{MAX_NAMED} cassettes the rest are summed",
        labels=["outcome", "route", "status", "cassette"],
    )
    # A rate needs a value before the first request; in Prometheus an empty label is none.
    for outcome in _OUTCOMES:
        family.add_metric([outcome, "", "", ""], 0)
    for kind, measure in journal.measures.items():
        cassette, route, outcome, status = kind
        family.add_metric([outcome, route, f"{status}xx", cassette], sum(measure.within))
    return family


def _durations(journal: RequestJournal) -> Metric:
    family = HistogramMetricFamily(
        "tapeway_request_duration_seconds",
        "Proxied requests by their duration, as in the journal",
        labels=["outcome", "route", "status"],
    )
    # Without the cassette, which would make a hundred times as many buckets.
    kinds: dict[tuple[str, str, str], list[Measure]] = defaultdict(list)
    for (_, route, outcome, status), measure in journal.measures.items():
        kinds[outcome, route, f"{status}xx"].append(measure)
    for labels, measures in kinds.items():
        counts = map(sum, zip(*(measure.within for measure in measures), strict=True))
        seconds = sum(measure.ms for measure in measures) / 1000
        family.add_metric(labels, list(zip(_BOUNDS, accumulate(counts), strict=True)), seconds)
    return family


def _bodies(journal: RequestJournal) -> Iterator[Metric]:
    sent = CounterMetricFamily(
        "tapeway_sent_bytes", "Bytes of response bodies sent to clients", labels=["route"]
    )
    received = CounterMetricFamily(
        "tapeway_received_bytes",
        "Bytes of response bodies received from upstreams, of calls that succeeded",
        labels=["route"],
    )
    for family, outcomes in ((sent, frozenset(_OUTCOMES)), (received, _FROM_UPSTREAM)):
        totals: dict[str, int] = defaultdict(int)
        for (_, route, outcome, _), measure in journal.measures.items():
            if outcome in outcomes:
                totals[route] += measure.sent
        for route, total in totals.items():
            family.add_metric([route], total)
        yield family


def _interactions(loaded: Sequence[CassetteCounts]) -> Metric:
    family = GaugeMetricFamily(
        "tapeway_cassette_interactions",
        f"Interactions per loaded cassette; above {MAX_NAMED} cassettes the rest are summed",
        labels=["cassette"],
    )
    for cassette in loaded[:MAX_NAMED]:
        family.add_metric([cassette.name], cassette.interactions)
    if len(loaded) > MAX_NAMED:
        others = sum(cassette.interactions for cassette in loaded[MAX_NAMED:])
        family.add_metric([OTHERS], others)
    return family


def _info(version: str) -> Metric:
    family = GaugeMetricFamily("tapeway_build_info", "The version of tapeway", labels=["version"])
    family.add_metric([version], 1)
    return family
