"""What goes wrong without anybody having raised it: errors in the log, and tasks nobody waited for."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Noting(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self._found.append(f"{record.name}: {record.getMessage()}")


@contextmanager
def faults() -> Iterator[list[str]]:
    """What is logged as an error, or with a traceback, and what nobody retrieved."""
    found: list[str] = []

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        found.append(f"{context['message']}: {context.get('exception')!r}")

    loop, log, noting = asyncio.get_running_loop(), logging.getLogger("tapeway"), _Noting(found)
    level = log.level
    loop.set_exception_handler(note)
    log.setLevel(logging.DEBUG)
    log.addHandler(noting)
    try:
        yield found
    finally:
        gc.collect()
        log.removeHandler(noting)
        log.setLevel(level)
        loop.set_exception_handler(None)
