"""File descriptors: how many the process may have, and who may have how many of them.

The kernel gives out the lowest free number. So if that is near the limit, nearly all are in use, and
nobody has to count.
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
    """Raise the soft limit to the hard one."""
    _, hard = _AT_START
    # macOS has an unlimited hard limit that it does not accept as a soft one.
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
    """How many of the last ones are not for clients of the proxy.

    They are left for the admin API and for what a recording under way opens.
    """
    return min(max(_FEWEST_KEPT, descriptor_limit() // 8), _MOST_KEPT)


def descriptors_left() -> int:
    """How many descriptors there are above the lowest that is free."""
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
