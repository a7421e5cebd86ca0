"""The HTTP proxy that a wrapped command's proxy variables point at.

With `--tls` the cassette answers requests to the hosts of routes, behind a certificate of the run's
authority. Requests to other hosts are tunnelled, or with `--offline` refused, and their hosts are noted.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import cast

from yarl import URL

from tapeway.embedded.client_variables import LOOPBACK
from tapeway.errors import UpstreamError
from tapeway.providers.hosts import HostRoutes, RoutedHost
from tapeway.server.front import Front, FrontServer
from tapeway.upstream.faults import login_needed
from tapeway.upstream.outer_proxy import OuterProxy

log = logging.getLogger(__name__)

_TARGET = re.compile(rb"[A-Z]+ (?:https?://)?(?:[^/@ ]*@)?([A-Za-z0-9._:\[\]-]+)", re.IGNORECASE)
_CONNECT = re.compile(
    rb"CONNECT \[?([A-Za-z0-9._:-]{1,255})\]?:([0-9]{1,5}) HTTP/1\.[01]\r\n", re.I
)
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_HEAD_S = 5.0
_HANDSHAKE_S = 30.0
_MOST_HOSTS = 1000
_PIECE = 256 * 1024
_GRACE_S = 0.25

ServerOf = Callable[[RoutedHost], FrontServer]
"""Makes what serves the clients of a routed host."""


class Interception:
    """Serves the hosts of routes over TLS."""

    def __init__(
        self,
        hosts: HostRoutes,
        server_of: ServerOf,
        context_for: Callable[[str], ssl.SSLContext],
    ) -> None:
        self._hosts = hosts
        self._server_of = server_of
        self._context_for = context_for
        self._servers: dict[RoutedHost, FrontServer] = {}
        self._distrusted: set[str] = set()

    def find(self, host: str, port: int) -> RoutedHost | None:
        """A routed host, None for any other."""
        return self._hosts.find(host, port)

    async def serve(self, host: RoutedHost, transport: asyncio.Transport) -> None:
        """Serve a client's connection to its end; the client begins with TLS now."""
        if host not in self._servers:
            self._servers[host] = self._server_of(host)
        early = _EarlyInput()
        try:
            over_tls = await asyncio.get_running_loop().start_tls(
                transport,
                early,
                self._context_for(host.host),
                server_side=True,
                ssl_handshake_timeout=_HANDSHAKE_S,
            )
        except ssl.SSLError as exc:
            self._note_distrust(host.host, exc)
            return
        if over_tls is None:
            return
        protocol = self._servers[host]()
        early.hand_over(over_tls, protocol)
        if isinstance(protocol, Front):
            await asyncio.wait((protocol.lost,))

    def _note_distrust(self, host: str, exc: ssl.SSLError) -> None:
        if host not in self._distrusted:
            self._distrusted.add(host)
            log.warning(
                "the command asked for %s and refused the certificate of this run (%s): its client "
                "reads none of the variables that name certificate authorities, or has pinned the "
                "certificate of its service",
                host,
                exc.reason,
            )

    async def close(self) -> None:
        """End the connections that are served."""
        for server in self._servers.values():
            await server.shutdown(_GRACE_S)


class _EarlyInput(asyncio.Protocol):
    """Keeps the bytes that follow a client's handshake until the connection is served."""

    def __init__(self) -> None:
        self._data = b""
        self._has_ended = self._is_lost = False

    def data_received(self, data: bytes) -> None:
        self._data += data

    def eof_received(self) -> None:
        self._has_ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True

    def hand_over(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        """Have another protocol serve the connection."""
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._data:
            protocol.data_received(self._data)
        if self._has_ended:
            protocol.eof_received()
        if self._is_lost:
            protocol.connection_lost(None)


class ForwardProxy:
    """An HTTP proxy on loopback, which notes the hosts of requests past the cassette."""

    def __init__(
        self,
        *,
        offline: bool,
        interception: Interception | None = None,
        outer: Callable[[URL], OuterProxy | None] = lambda _: None,
        outer_tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        connect_s: float = 10.0,
    ) -> None:
        """`offline` refuses other hosts. `outer` finds the next proxy on the way to such a host, and
        `outer_tls` makes the TLS for that proxy.
        """
        self.url = ""
        self._offline = offline
        self._interception = interception
        self._outer = outer
        self._outer_tls = outer_tls
        self._connect_s = connect_s
        self._hosts: dict[str, None] = {}
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host and port of the requests past the cassette, each once, in order."""
        return tuple(self._hosts)

    @property
    def variables(self) -> dict[str, str]:
        """The proxy variables, in the spellings that clients read."""
        upper = {"HTTPS_PROXY": self.url}
        if self._offline:
            names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
            upper = {**dict.fromkeys(names, self.url), "NO_PROXY": ",".join(LOOPBACK)}
        return upper | {name.lower(): value for name, value in upper.items()}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._open.add(writer)
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was asks for nobody
        finally:
            self._open.discard(writer)
            writer.close()

    async def close(self) -> None:
        """End all connections."""
        if self._interception is not None:
            await self._interception.close()
        for connection in self._open:
            connection.transport.abort()

    async def _answer(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match = _CONNECT.match(head)
        host_and_port = None if match is None else (match[1].decode(), int(match[2]))
        served = None
        if host_and_port is not None and self._interception is not None:
            served = self._interception.find(*host_and_port)
        if served is not None and self._interception is not None:
            writer.write(_CONNECTED)
            await self._interception.serve(served, cast("asyncio.Transport", writer.transport))
            return
        if (asked := _TARGET.match(head)) is not None and len(self._hosts) < _MOST_HOSTS:
            self._hosts[asked[1].decode("ascii")] = None
        if self._offline:
            refusal = "--offline lets no request through: use the base URL of the proxy"
            writer.write(_refusal(HTTPStatus.FORBIDDEN, refusal))
        elif host_and_port is None:
            writer.write(_refusal(HTTPStatus.METHOD_NOT_ALLOWED, "--tls serves CONNECT alone"))
        else:
            await self._tunnel(*host_and_port, reader, writer)
            return
        await writer.drain()

    async def _tunnel(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(self._connect_s):
                there = await self._connected(host, port)
        except (OSError, TimeoutError, UpstreamError) as exc:
            why = exc.message if isinstance(exc, UpstreamError) else "it cannot be reached"
            # Many clients say the status alone.
            log.warning("the command asked for %s:%d: %s", host, port, why)
            writer.write(_refusal(HTTPStatus.BAD_GATEWAY, f"{host}:{port}: {why}"))
            await writer.drain()
            return
        self._open.add(there[1])
        try:
            writer.write(_CONNECTED)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, there[1]))
                both.create_task(_pump(there[0], writer))
        finally:
            self._open.discard(there[1])
            there[1].close()

    async def _connected(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a host, through the proxy on the way if there is one."""
        proxy = self._outer(URL.build(scheme="https", host=host, port=port))
        if proxy is None:
            return await asyncio.open_connection(host, port)
        tls = await asyncio.to_thread(self._outer_tls) if proxy.is_tls else None
        try:
            there = await asyncio.open_connection(proxy.url.host, proxy.url.port, ssl=tls)
        except ssl.SSLError as exc:
            raise UpstreamError(f"{proxy} could not be spoken with over TLS: {exc.reason}") from exc
        except OSError as exc:
            raise UpstreamError(f"{proxy} cannot be reached") from exc
        try:
            await _connect_through(proxy, host, port, *there)
        except BaseException:
            there[1].close()
            raise
        return there


async def _connect_through(
    proxy: OuterProxy,
    host: str,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Have a proxy connect to a host. Raises UpstreamError."""
    host_and_port = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    fields = "".join(f"{name}: {value}\r\n" for name, value in proxy.headers.items())
    writer.write(
        f"CONNECT {host_and_port} HTTP/1.1\r\nHost: {host_and_port}\r\n{fields}\r\n".encode()
    )
    try:
        answer = await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
        raise UpstreamError(f"{proxy} broke off, or speaks no HTTP") from exc
    if (match := _STATUS.match(answer)) is None:
        raise UpstreamError(f"{proxy} speaks no HTTP")
    status = int(match[1])
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        raise login_needed(proxy)
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise UpstreamError(f"{proxy} answered {status}")


@asynccontextmanager
async def listening(proxy: ForwardProxy) -> AsyncIterator[ForwardProxy]:
    """Serve a proxy on a free port of loopback inside the block."""
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            await proxy.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        return
    writer.close()


def _refusal(status: HTTPStatus, text: str) -> bytes:
    body = f"tapeway run {text}\n".encode()
    return (
        b"HTTP/1.1 %d %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        % (status.value, status.phrase.encode(), len(body), body)
    )
