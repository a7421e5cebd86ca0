"""Every test of the server runs on the event loop it serves on, and on the standard one."""

from tests.support.event_loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
