"""`--offline`: moves the whole process into a network namespace that has only loopback.

Where the kernel does not allow it, the proxy variables alone keep a command from the network
(`forward_proxy.py`).
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


def enter_network_namespace() -> bool:
    """Move this process, with one thread, into a network namespace; False if impossible.

    A child tries the move first: a half-done move would leave the process without its user.
    """
    if sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        os._exit(not _enter())
    _, status = os.waitpid(child, 0)
    return status == 0 and _enter()


def _enter() -> bool:
    uid, gid = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    try:
        # Root keeps its rights over files of other users without a user namespace.
        if unshare(_NEW_NETWORK) != 0:
            if unshare(_NEW_USER | _NEW_NETWORK) != 0:
                return False
            _map_user(uid, gid)
        _bring_up_loopback()
    except OSError:
        return False
    return True


def _map_user(uid: int, gid: int) -> None:
    """The user keeps its own numbers."""
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as opened:
            opened.write(text)


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _GET_FLAGS, request), 16)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
