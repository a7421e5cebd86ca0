"""How much a run of the suite tries: a fixed sample by default, everything under `--all`.

By default hypothesis draws the same examples in every run, whatever ran before and on whatever
machine, and the slow matrices take every n-th case. Under `--all` it draws from a fresh seed, at
least ten times as many examples, and the matrices are run in full.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

_SAMPLE = "sample"
_ALL = "all"
_MORE = 10
_EXAMPLES = 20
"""With more, the same examples in every run would take the time that `--all` is for."""

# A busy machine is not a fault of the code: nothing has a deadline or is called too slow. No
# database of failing examples either: what a run found would change what the next one draws.
settings.register_profile(
    _SAMPLE,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    derandomize=True,
    max_examples=_EXAMPLES,
)
settings.register_profile(
    _ALL,
    settings.get_profile(_SAMPLE),
    derandomize=False,
    max_examples=1000,
    print_blob=True,
)
settings.load_profile(_SAMPLE)


def choose(*, everything: bool) -> None:
    """Say which of the two this run is; to be called before test modules are imported."""
    settings.load_profile(_ALL if everything else _SAMPLE)
    if not everything:
        # Hypothesis also draws constants that it finds in the source of all modules imported so
        # far, so the examples of a test would depend on which tests ran before it.
        pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda path: False)


def runs_everything() -> bool:
    """Whether this run tries everything."""
    return settings.get_current_profile_name() == _ALL


def examples(count: int) -> int:
    """How many examples a property is tried with that by default takes this many."""
    return count * _MORE if runs_everything() else count


def combinations(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """By default as many combinations as it takes to have each value once, all under `--all`."""
    if runs_everything():
        return list(product(*axes))
    return [tuple(axis[n % len(axis)] for axis in axes) for n in range(max(map(len, axes)))]


def step(nth: int) -> int:
    """The step through the cases of a slow matrix: every n-th is taken, all under `--all`."""
    return 1 if runs_everything() else nth
