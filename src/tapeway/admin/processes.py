"""What the processes that serve take of the machine, as Prometheus reads it of one."""

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tapeway.admin.instances import Instances

_OF_ONE = frozenset({"process_start_time_seconds", "process_max_fds"})
_CPU = "process_cpu_seconds"


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
