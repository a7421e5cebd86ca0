"""The forward proxy of a run serves on uvloop; its tests run on the standard event loop too."""

from tests.support.event_loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
