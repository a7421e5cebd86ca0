"""The event loops that what touches a socket is tested on."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tests.support.thoroughness import step


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, which tapeway serves on, and the standard one, whose errors and timing differ."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def sample(config: pytest.Config, items: list[pytest.Item], folder: Path) -> None:
    """Of each test's cases in that folder, take every fourth on the standard loop by default."""
    cases: Counter[str] = Counter()
    taken: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        which = 0
        if folder in item.path.parents and _on_the_standard_loop(item):
            test = item.nodeid.partition("[")[0]
            which = cases[test] % step(4)
            cases[test] += 1
        (left_out if which else taken).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = taken


def _on_the_standard_loop(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    factories = [] if call is None else call.params.values()
    return any(factory is asyncio.new_event_loop for factory in factories)
