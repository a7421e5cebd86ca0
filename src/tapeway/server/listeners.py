"""Sockets bound before anything is served, so that a taken port is one clear error.

A listener and what serves it.
"""

import errno
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass

from aiohttp import web

from tapeway.errors import TapewayError

BACKLOG = 1024
_SAID = {
    errno.EADDRINUSE: "is taken by another process: stop that one, or give another port",
    errno.EADDRNOTAVAIL: "is not an address of this machine",
    errno.EACCES: "may not be bound by this user: give a port from 1024 on",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket and where it really listens."""

    socket: socket.socket
    host: str
    port: int

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def listen(option: str, host: str, port: int) -> Listener:
    """Bind and listen; port 0 takes a free one. Raises TapewayError naming the option.

    Who connects before the listener is served waits for it.
    """
    return _listening(option, host, port, shared=False)


def listen_together(option: str, host: str, port: int, count: int) -> list[Listener]:
    """So many listeners on one port, among which the kernel spreads the connections.

    One that is handed to another process stays open here, so that who connects while that one is
    replaced waits for the next. Raises TapewayError naming the option.
    """
    first = _listening(option, host, port, shared=True)
    listeners = [first]
    try:
        while len(listeners) < count:
            listeners.append(_listening(option, first.host, first.port, shared=True, joins=True))
    except BaseException:
        for each in listeners:
            each.socket.close()
        raise
    return listeners


def adopted(fd: int) -> Listener:
    """The listener another process handed over."""
    return _named(socket.socket(fileno=fd))


def _listening(option: str, host: str, port: int, *, shared: bool, joins: bool = False) -> Listener:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as exc:
        raise TapewayError(
            f"{option} {host}: the name cannot be looked up; give an address of this machine",
            code="listen",
        ) from exc
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if joins:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        if shared:
            # Not before it is bound: it would share the port of another tapeway without a word.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Bound alone it is not yet ours: another process that may reuse addresses binds it too.
        bound.listen(BACKLOG)
    except OSError as exc:
        bound.close()
        said = _SAID.get(exc.errno or 0, f"cannot be bound ({exc.strerror})")
        raise TapewayError(f"{option} {host}:{port} {said}", code="listen") from exc
    return _named(bound)


def _named(bound: socket.socket) -> Listener:
    name = bound.getsockname()
    return Listener(bound, str(name[0]), int(name[1]))


@dataclass(frozen=True, slots=True)
class MountedListener:
    """One of them, serving."""

    listener: Listener
    runner: web.ServerRunner | web.AppRunner

    async def close(self) -> None:
        """Let nobody in any more; those who are stay."""
        for site in self.runner.sites:
            await site.stop()

    async def ended(self) -> None:
        """End idle connections now, and those that still write an answer once it is out."""
        if (server := self.runner.server) is not None:
            server.pre_shutdown()
            await server.shutdown(None)


async def mount(
    stack: AsyncExitStack, runner: web.ServerRunner | web.AppRunner, listener: Listener
) -> MountedListener:
    """Serve on a listener until the stack ends."""
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.SockSite(runner, listener.socket, backlog=BACKLOG).start()
    return MountedListener(listener, runner)
