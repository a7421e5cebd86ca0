"""File descriptors: how many the process may have, and how many each purpose may use.

The kernel gives out the lowest free number. If this number is near the limit, nearly all descriptors
are in use, and nobody has to count.
"""

import errno
import os
import resource
from contextlib import suppress

_FEWEST_KEPT, _MOST_KEPT = 16, 64
_CASSETTES = 1024
_CONNECTIONS = 500


_AT_START = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard limit."""
    _, hard = _AT_START
    # On macOS the hard limit is "unlimited", and not allowed as a soft limit.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_descriptor_limit() -> None:
    """Restore the limit, in a child process that runs another program: some use `select`."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, _AT_START)


def descriptor_limit() -> int:
    """How many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def descriptors_kept_back() -> int:
    """How many descriptors clients of the proxy must leave free.

    The admin API and recordings under way need these.
    """
    return min(max(_FEWEST_KEPT, descriptor_limit() // 8), _MOST_KEPT)


def descriptors_left() -> int:
    """How many descriptors lie above the lowest free descriptor."""
    try:
        lowest = os.dup(0)
    except OSError as exc:
        # A process may have been started without standard input.
        return 0 if exc.errno in (errno.EMFILE, errno.ENFILE) else descriptor_limit()
    os.close(lowest)
    return descriptor_limit() - lowest


def max_open_cassettes() -> int:
    """How many cassettes in a folder may have their handles open: a quarter of all, three for each."""
    return max(4, min(descriptor_limit() // 12, _CASSETTES))


def max_upstream_connections() -> int:
    """How many connections to upstreams may be open: a quarter of all."""
    return max(4, min(descriptor_limit() // 4, _CONNECTIONS))
