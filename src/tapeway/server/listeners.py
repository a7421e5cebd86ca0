"""Listening sockets, and serving on them.

Sockets are bound before anything is served: a taken port is one clear error.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tapeway.errors import ConfigError, TapewayError, describe
from tapeway.settings.parsers import HostPort

log = logging.getLogger(__name__)

BACKLOG = 1024
_GRACE_S = 0.25
"""At the end of a listener, a connection that stays open delays the stop by twice this time."""
_HANDSHAKE_S = 30.0
_BIND_ERRORS = {
    errno.EADDRINUSE: "is taken by another process: stop that process, or give another port",
    errno.EADDRNOTAVAIL: "is not an address of this machine",
    errno.EACCES: "may not be bound by this user: give a port of 1024 or above",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and the address it is bound to."""

    socket: socket.socket
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    """The certificate for TLS; None to serve without TLS."""

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{HostPort(*self.address)}"

    @property
    def url_from_here(self) -> str:
        """The URL for clients on this machine."""
        here = HostPort(*self.address).from_here
        return replace(self, host=here.host).url

    def over_tls(self, tls: ssl.SSLContext | None) -> "Listener":
        """This listener, served with a certificate; without one if `tls` is None."""
        return replace(self, tls=tls)


def listen(option: str, host: str, port: int) -> Listener:
    """Bind and listen; port 0 takes a free port. Raises TapewayError that names the option.

    Early clients wait until the listener is served.
    """
    return _adopted.pop((host, port), None) or _bound(option, host, port)


def adopt(fd: int) -> None:
    """Have `listen` use a listening socket that the parent process opened."""
    listener = _of_socket(socket.socket(fileno=fd))
    _adopted[listener.address] = listener


def _bound(option: str, host: str, port: int) -> Listener:
    try:
        # As bytes: for a text Python would import the encoding of international names.
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as exc:
        raise TapewayError(
            f"{option} {host}: the name does not resolve; give an address of this machine",
            code="listen",
        ) from exc
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Binding alone does not reserve the port: a process with SO_REUSEADDR can bind it too.
        bound.listen(BACKLOG)
    except OSError as exc:
        bound.close()
        reason = _BIND_ERRORS.get(exc.errno or 0, f"cannot be bound ({exc.strerror})")
        raise TapewayError(f"{option} {host}:{port} {reason}", code="listen") from exc
    return _of_socket(bound)


def _of_socket(bound: socket.socket) -> Listener:
    name = bound.getsockname()
    return Listener(bound, str(name[0]), int(name[1]))


_adopted: dict[tuple[str, int], Listener] = {}


def certificate_context(cert: str, key: str | None) -> ssl.SSLContext:
    """The TLS context for a certificate file. Raises ConfigError for an unusable file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # HTTP/2 is not served: clients that offer both use HTTP/1.1.
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, "--tls-cert", cert, key)
    return context


_CERTIFICATE_FAULTS = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the first certificate of the file: the "
    "certificate of the key comes first, those of its issuers behind",
    "EE_KEY_TOO_SMALL": "the key is too short: take RSA with 2048 bits or more, or ECDSA",
    "CA_MD_TOO_WEAK": "the certificate is signed with a digest that is too weak: take SHA-256",
}
"""What OpenSSL objects to, in words."""


def load_certificate(context: ssl.SSLContext, option: str, cert: str, key: str | None) -> None:
    """Load certificate and key from files that an option names. Raises ConfigError."""
    files = cert if key is None else f"{cert} with the key {key}"
    key_file = key or cert
    read = {file: _content(option, file) for file in (cert, key_file)}

    def no_passphrase() -> str:
        # Without this OpenSSL would ask at the terminal.
        raise ConfigError(f"{option} {files}: the key has a passphrase; give a key without one")

    try:
        context.load_cert_chain(cert, key, password=no_passphrase)
    except ssl.SSLError as exc:
        if b"CERTIFICATE-----" not in read[cert]:
            reason = f"{cert} holds no certificate in PEM"
        elif b"PRIVATE KEY-----" not in read[key_file]:
            reason = f"{key_file} holds no private key in PEM"
        else:
            reason = _CERTIFICATE_FAULTS.get(exc.reason or "", "they cannot be read as PEM")
        raise ConfigError(f"{option} {files} cannot be used: {reason}") from None


def _content(option: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as exc:
        raise ConfigError(f"{option} {file} cannot be read: {exc.strerror}") from None


class ProtocolFactory(Protocol):
    """Makes the protocol of each connection, and ends connections: aiohttp's server is one."""

    def __call__(self) -> asyncio.BaseProtocol: ...

    def pre_shutdown(self) -> None:
        """Close idle connections now, and busy connections after the answer."""

    async def shutdown(self, timeout: float | None = None, /) -> None:  # noqa: ASYNC109
        """Wait for the end of all connections, for some seconds."""


@dataclass(frozen=True, slots=True)
class MountedListener:
    """A listener that is served."""

    listener: Listener
    server: ProtocolFactory
    acceptor: asyncio.AbstractServer

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        self.acceptor.close()

    async def ended(self, abort_after: float | None = None) -> None:
        """Close idle connections now, and busy connections after the response."""
        self.server.pre_shutdown()
        await self.server.shutdown(abort_after)


async def mount(
    stack: AsyncExitStack, server: ProtocolFactory, listener: Listener
) -> MountedListener:
    """Serve on a listener until the stack ends."""
    # Without aiohttp's runners: they import modules that the proxy does not need.
    acceptor = await asyncio.get_running_loop().create_server(
        server,
        sock=listener.socket,
        backlog=BACKLOG,
        ssl=listener.tls,
        ssl_handshake_timeout=None if listener.tls is None else _HANDSHAKE_S,
    )
    mounted = MountedListener(listener, server, acceptor)
    stack.push_async_callback(_end, mounted)
    return mounted


async def _end(mounted: MountedListener) -> None:
    mounted.close()
    # Connections accepted just now begin to read their request.
    await asyncio.sleep(0)
    await mounted.ended(_GRACE_S)


class LateListener:
    """A listener whose server is made when the first client connects. The client waits meanwhile."""

    def __init__(
        self,
        stack: AsyncExitStack,
        make: Callable[[], Awaitable[ProtocolFactory]],
        listener: Listener,
    ) -> None:
        """It is served until the stack ends, but `close` must come first."""
        self.listener = listener
        self._stack = stack
        self._make = make
        self._mounted: MountedListener | None = None
        self._mounting: asyncio.Task[None] | None = None
        asyncio.get_running_loop().add_reader(listener.socket, self._begin)

    async def close(self) -> None:
        """Accept no more connections; open ones stay."""
        if self._mounting is None:
            asyncio.get_running_loop().remove_reader(self.listener.socket)
            self.listener.socket.close()
            return
        await self._mounting
        if self._mounted is not None:
            self._mounted.close()

    async def ended(self) -> None:
        """Close idle connections now, and busy connections after the response."""
        if self._mounted is not None:
            await self._mounted.ended()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.listener.socket)
        self._mounting = loop.create_task(self._mount())

    async def _mount(self) -> None:
        try:
            self._mounted = await mount(self._stack, await self._make(), self.listener)
        except Exception as exc:
            # Clients are refused rather than left waiting.
            log.error("%s cannot be served: %s", self.listener.url, describe(exc))
            self.listener.socket.close()
