"""A server of the standard library that answers beside a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)

_POLL_S = 0.01
"""How often the server looks whether it is to stop: half a second by default, a wait for each test."""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve in a thread of its own until the end of the block."""
    with server:
        thread = Thread(target=server.serve_forever, args=[_POLL_S])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
