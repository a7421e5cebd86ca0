"""The client's side of a WebSocket connection, by aiohttp's server."""

import logging
import struct
from collections.abc import Sequence
from typing import Any

from aiohttp.log import ws_logger
from aiohttp.web_ws import WebSocketResponse

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Headers
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.errors import RequestError
from tapeway.server.messages import ClientRequest
from tapeway.upstream.message_socket import MessageSocket

_PROTOCOLS = b"sec-websocket-protocol"
_EXTENSIONS = b"sec-websocket-extensions"
_TEXT, _BINARY = 0x81, 0x82
"""The first octet of a frame with a whole message (RFC 6455 section 5.2)."""
_SHORT, _MEDIUM, _LONG = struct.Struct("!BB"), struct.Struct("!BBH"), struct.Struct("!BBQ")

# The only warning of aiohttp's logger repeats the offered subprotocols, where browsers put keys.
ws_logger.setLevel(logging.ERROR)


class ClientSocket(MessageSocket):
    """The connection of a client after an accepted handshake."""

    __slots__ = ("_compresses", "_raw")

    def __init__(self, response: Any, raw: ClientRequest, subprotocol: str | None) -> None:
        super().__init__(response, self._cut, subprotocol)
        self._raw = raw
        self._compresses = bool(response.compress)

    def _cut(self) -> None:
        if (transport := self._raw.transport) is not None:
            transport.abort()

    async def send_all(self, messages: Sequence[WebSocketMessage]) -> None:
        """Send messages as fast as the client reads, in a single write without compression.

        Raises ConnectionError.
        """
        if self._compresses:
            for message in messages:
                await self.send(message)
        elif messages:
            await self._raw.send(b"".join([*map(_frame, messages)]))
            await self._turns.pause_if_over()


def check_handshake(raw: ClientRequest) -> None:
    """Raise RequestError for a request that cannot become a WebSocket connection."""
    if raw.method != "GET" or not WebSocketResponse().can_prepare(raw):
        raise RequestError(
            "this is no WebSocket handshake: it takes GET, Connection: Upgrade, Sec-WebSocket-Version: "
            "13 and a Sec-WebSocket-Key of 16 bytes",
            code="bad_handshake",
        )


def offered_subprotocols(headers: Headers) -> list[str]:
    """The subprotocols offered by a client, in order. One of them may contain a key."""
    lines = [value for name, value in headers if name.lower() == _PROTOCOLS]
    names = b",".join(lines).decode("latin-1").split(",")
    return [name.strip() for name in names if name.strip()]


def offers_deflate(headers: Headers) -> bool:
    """Whether a client can take compressed messages."""
    return b"permessage-deflate" in (find_header(headers, _EXTENSIONS) or b"")


async def accept(
    raw: ClientRequest, subprotocol: str | None, fields: Headers, max_message: int
) -> ClientSocket:
    """Complete a handshake with these fields. Raises ConnectionError if the client has left."""
    response: Any = WebSocketResponse(
        protocols=() if subprotocol is None else (subprotocol,),
        autoclose=False,
        max_msg_size=max_message,
        decode_text=False,
    )
    response.headers["Server"] = "tapeway"
    for name, value in fields:
        key = name.decode("latin-1")
        if key.lower() == "server":
            response.headers[key] = value.decode("utf-8", "replace")
        else:
            response.headers.add(key, value.decode("utf-8", "replace"))
    await response.prepare(raw)
    return ClientSocket(response, raw, subprotocol)


def _frame(message: WebSocketMessage) -> bytes:
    first, size = _BINARY if message.binary else _TEXT, len(message.data)
    if size < 126:
        return _SHORT.pack(first, size) + message.data
    if size < 1 << 16:
        return _MEDIUM.pack(first, 126, size) + message.data
    return _LONG.pack(first, 127, size) + message.data
