"""The event loops that what touches a socket is tested on."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, which tapeway serves on, and the standard one, whose errors and timing differ."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
