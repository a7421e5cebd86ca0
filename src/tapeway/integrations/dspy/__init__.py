"""Record and replay DSPy programs: `from tapeway.integrations.dspy import ReplayCache`.

DSPy is imported with the first name from here. The modules of this package that do not need DSPy
stay usable without DSPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapeway.integrations.dspy.replay_cache import CacheMissError, ReplayCache

__all__ = ["CacheMissError", "ReplayCache"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.replay_cache"), name)
