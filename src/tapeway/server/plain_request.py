"""A plain request that arrived whole, handled without aiohttp's parser, request and handler tasks.

Its head was read and routed by the fast path, and no recording answers it there. The proxy handles it
as it handles aiohttp's requests, and writes the same bytes.
"""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import HttpVersion11
from aiohttp.http_writer import StreamWriter
from aiohttp.web_request import BaseRequest

from tapeway.core.http.routing import RequestAddress
from tapeway.core.model.messages import Headers

if TYPE_CHECKING:
    from tapeway.server.protocol import ClientConnection


class WholeBody:
    """A body of which nothing is still to come."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def is_eof(self) -> bool:
        return True

    def read_nowait(self, n: int = -1) -> bytes:
        return self._data


class PlainRequest:
    """What the proxy asks of a request. Its connection stays open for the next one."""

    __slots__ = (
        *("_writer", "address", "content", "method", "protocol"),
        *("raw_headers", "raw_path"),
    )

    version = HttpVersion11
    keep_alive = True

    def __init__(
        self,
        protocol: "ClientConnection",
        method: str,
        target: str,
        headers: Headers,
        address: RequestAddress,
        body: bytes,
    ) -> None:
        self.protocol = protocol
        self.method = method
        self.raw_path = target
        self.raw_headers = headers
        self.address = address
        self.content = WholeBody(body)
        self._writer: StreamWriter | None = None

    @property
    def transport(self) -> asyncio.Transport | None:
        return self.protocol.transport

    @property
    def writer(self) -> StreamWriter:
        """Writes the answer as fast as the client takes it."""
        if self._writer is None:
            self._writer = StreamWriter(self.protocol, asyncio.get_running_loop())
        return self._writer


ClientRequest = BaseRequest | PlainRequest
"""A client's request, as the proxy handles it."""
