"""When the pieces of a recorded answer are due."""

from tapeway.core.model import Response


class Pace(float):
    """How long a replay takes for a recorded second: 1 as recorded, a half for twice as fast."""


AT_ONCE = Pace(0)
AS_RECORDED = Pace(1)


class Schedule:
    """The times of one answer, in seconds from the arrival of its request."""

    def __init__(self, response: Response, latency_ms: float, pace: Pace) -> None:
        times = [chunk.at_ms for chunk in response.chunks] or [at for at, _ in response.cuts]
        self._pace = pace
        # A recording without times, as another tool's is, came when its call had ended.
        self._earliest = 0.0 if any(times) else latency_ms
        self.head_s = self.due_s(times[0] if times else 0.0)
        self.end_s = self.due_s(max(latency_ms, times[-1] if times else 0.0))

    def due_s(self, at_ms: float) -> float:
        """When to send what came at a recorded time."""
        return max(at_ms, self._earliest) / 1000 * self._pace
