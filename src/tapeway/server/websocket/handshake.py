"""The client's side of a WebSocket connection, by aiohttp's server."""

import logging
from typing import Any

from aiohttp.log import ws_logger
from aiohttp.web_ws import WebSocketResponse

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Headers
from tapeway.errors import RequestError
from tapeway.server.messages import ClientRequest
from tapeway.upstream.message_socket import MessageSocket

_PROTOCOLS = b"sec-websocket-protocol"
_EXTENSIONS = b"sec-websocket-extensions"

# Its one warning repeats the subprotocols that a client offers, and browsers put keys there.
ws_logger.setLevel(logging.ERROR)


class ClientSocket(MessageSocket):
    """The connection of a client whose handshake was accepted."""


def check_handshake(raw: ClientRequest) -> None:
    """Raise RequestError for a request that cannot become a WebSocket connection."""
    if raw.method != "GET" or not WebSocketResponse().can_prepare(raw):
        raise RequestError(
            "this is no WebSocket handshake: it takes GET, Connection: Upgrade, Sec-WebSocket-Version: "
            "13 and a Sec-WebSocket-Key of 16 bytes",
            code="bad_handshake",
        )


def offered_subprotocols(headers: Headers) -> list[str]:
    """The subprotocols that a client offers, in its order. They may contain a key."""
    lines = [value for name, value in headers if name.lower() == _PROTOCOLS]
    found = b",".join(lines).decode("latin-1").split(",")
    return [each.strip() for each in found if each.strip()]


def offers_deflate(headers: Headers) -> bool:
    """Whether a client can take compressed messages."""
    return b"permessage-deflate" in (find_header(headers, _EXTENSIONS) or b"")


async def accept(
    raw: ClientRequest, subprotocol: str | None, fields: Headers, max_message: int
) -> ClientSocket:
    """Complete the client's handshake with these fields. Raises ConnectionError if it has left."""
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
    transport = raw.transport

    def abort() -> None:
        if transport is not None:
            transport.abort()

    return ClientSocket(response, abort, subprotocol)
