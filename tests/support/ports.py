"""Free ports for servers that are told which one to listen on."""

import os
import socket
from itertools import count

# Below those that the system gives to outgoing connections: between the look and the server's start
# no client gets one. Processes that run tests at the same time begin at different ones.
_FIRST, _LAST = 20_000, 32_000
_candidates = count(os.getpid() * 97)


def free_port() -> int:
    """A port nobody listens on, and a different one each time."""
    for candidate in _candidates:
        port = _FIRST + candidate % (_LAST - _FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("there is always one more")


def free_ports(count: int) -> list[int]:
    """So many of them."""
    return [free_port() for _ in range(count)]
