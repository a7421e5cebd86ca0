"""A company's proxy: it tunnels `CONNECT`, passes plain requests on, and may want a login."""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from tests.support.listening import Listening, read_request


def basic(user: str, password: str) -> bytes:
    """The authorization of this login."""
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


class ForwardProxy:
    """Serves between `async with` and its end. `hosts` tells where a name really is."""

    def __init__(
        self,
        hosts: Mapping[str, int] | None = None,
        *,
        login: bytes | None = None,
        refuses: bytes = b"",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`login` is the authorization that it wants, `refuses` what it answers to everything."""
        self.heads: list[bytes] = []
        self._hosts = dict(hosts or {})
        self._login = login
        self._refuses = refuses
        self._scheme = "https" if tls else "http"
        self._listening = Listening(self._answer, tls=tls)

    async def __aenter__(self) -> Self:
        self.port = await self._listening.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listening.stop()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def url_of(self, user: str, password: str) -> str:
        return self.url.replace("://", f"://{user}:{password}@")

    @property
    def asked(self) -> list[bytes]:
        """The first line of each request."""
        return [head.split(b"\r\n")[0] for head in self.heads]

    async def _answer(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self.heads.append(request)
        if self._refuses:
            writer.write(self._refuses)
        elif (
            self._login is not None
            and b"\r\nProxy-Authorization: " + self._login + b"\r\n" not in request
        ):
            writer.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\n"
                b'Proxy-Authenticate: Basic realm="company"\r\nContent-Length: 0\r\n\r\n'
            )
        elif request.startswith(b"CONNECT "):
            await self._tunnel(request.split(b" ")[1].decode(), reader, writer)
            return False
        else:
            await self._pass_on(request, writer)
        await writer.drain()
        return True

    async def _tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        name, _, port = target.rpartition(":")
        theirs = await asyncio.open_connection("127.0.0.1", self._hosts.get(name, int(port)))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(pump(theirs[0], writer))
                both.create_task(pump(reader, theirs[1]))
        finally:
            theirs[1].transport.abort()

    async def _pass_on(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        method, url, rest = request.split(b" ", 2)
        parts = urlsplit(url.decode())
        port = self._hosts.get(parts.hostname or "", parts.port or 80)
        path = url.split(b"/", 3)[3]
        reader, theirs = await asyncio.open_connection("127.0.0.1", port)
        theirs.write(b" ".join((method, b"/" + path, rest)))
        writer.write(await read_request(reader))
        theirs.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, up to its end."""
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
