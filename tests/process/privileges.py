"""Root's rights taken away, so that permissions count for a process that root's tests start."""

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP = 24
_RIGHTS = {
    "write and read any file": (1, 2, 3),
    "bind any port": (10,),
}


def drop_rights() -> None:
    """For the new process, before it becomes another program: the kernel looks when it does."""
    if os.geteuid() == 0:
        for capability in (number for numbers in _RIGHTS.values() for number in numbers):
            if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "a right could not be dropped")
