"""The logging of the process, given back as it was: configuring it is global."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_restored() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("tapeway")
    access = logging.getLogger("aiohttp.access")
    before = (list(root.handlers), root.level, own.level, access.disabled, logging.raiseExceptions)
    try:
        yield
    finally:
        root.handlers[:], level, own_level, access.disabled, logging.raiseExceptions = before
        root.setLevel(level)
        own.setLevel(own_level)
        logging.captureWarnings(False)
