"""`--offline`: keeps a command from the network, and notes who it asks for past the proxy.

Where the kernel allows it, the whole process moves into a network namespace that has only loopback.
In any case the proxy variables point at a listener that refuses every request.
"""

import asyncio
import ctypes
import fcntl
import os
import re
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from tapeway.settings.client_environment import LOOPBACK

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_TARGET = re.compile(rb"[A-Z]+ (?:https?://)?(?:[^/@ ]*@)?([A-Za-z0-9._:\[\]-]+)", re.IGNORECASE)
_HEAD_S = 5.0
_MOST_HOSTS = 1000


def enter_network_namespace() -> bool:
    """Move this process, which must have one thread, into a network namespace; False if it cannot.

    It is tried in a child first: half done, it would leave the process without its user.
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


class RefusingProxy:
    """An HTTP proxy that refuses every request and notes for whom it was."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._hosts: dict[str, None] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host and port of each request, once, in their order."""
        return tuple(self._hosts)

    @property
    def variables(self) -> dict[str, str]:
        """The proxy variables, in the spellings that clients read."""
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), self.url)
        upper = {**proxies, "NO_PROXY": ",".join(LOOPBACK)}
        return upper | {name.lower(): value for name, value in upper.items()}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Refuse one connection's request."""
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            if (found := _TARGET.match(head)) is not None and len(self._hosts) < _MOST_HOSTS:
                self._hosts[found[1].decode("ascii")] = None
            writer.write(_refusal())
            await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # whoever it was asks for nobody
        finally:
            writer.close()


@asynccontextmanager
async def refusing_proxy() -> AsyncIterator[RefusingProxy]:
    """Serve a RefusingProxy on a free port inside the block."""
    proxy = RefusingProxy("")
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy


def _refusal() -> bytes:
    text = b"tapeway run --offline lets no request through: use the base URL of the proxy\n"
    status = HTTPStatus.FORBIDDEN
    return (
        b"HTTP/1.1 %d %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        % (
            *(status.value, status.phrase.encode()),
            *(len(text), text),
        )
    )
