"""DSPy's programs, recorded and replayed: `from tapeway.integrations.dspy import ReplayCache`."""

from tapeway.integrations.dspy.replay_cache import ReplayCache

__all__ = ["ReplayCache"]
