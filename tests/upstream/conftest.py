"""Tests of the upstream client run on the event loop it serves on, and a sample on the standard one."""

from pathlib import Path

import pytest

from tests.support.event_loops import pytest_asyncio_loop_factories, sample

__all__ = ["pytest_asyncio_loop_factories"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sample(config, items, Path(__file__).parent)
