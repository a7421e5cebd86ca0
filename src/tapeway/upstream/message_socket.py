"""One end of a WebSocket connection: whole messages come and go, and so does a close frame.

aiohttp joins fragments, answers pings, and compresses, for each connection by itself.
"""

import asyncio
import codecs
import struct
from collections.abc import Callable
from typing import Any, Protocol

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from tapeway.cooperative import loop_turns
from tapeway.core.websocket.messages import Close, WebSocketMessage

NO_CODE = 1005
"""Stands for a close frame without a code. No frame may carry 1005 (RFC 6455 section 7.4.1)."""
LOST = Close(0)
CLOSE_S = 10.0
"""How long a peer may take to answer a close frame."""

_CODE = struct.Struct("!H")
_DECODED_AT_ONCE = 256 * 1024
_utf8 = codecs.getincrementaldecoder("utf-8")
_TEXT, _BINARY, _CLOSE = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CLOSE


class Frames(Protocol):
    """What the server's and the client's connections of aiohttp have in common."""

    @property
    def closed(self) -> bool: ...

    async def receive(self) -> Any: ...

    async def send_frame(self, message: bytes, opcode: WSMsgType) -> None: ...


class MessageSocket:
    """One end of a connection. `abort` ends the connection without a close frame."""

    __slots__ = ("_abort", "_frames", "_sends_no_more", "_turns", "_unchecked", "subprotocol")

    def __init__(self, frames: Frames, abort: Callable[[], None], subprotocol: str | None) -> None:
        self.subprotocol = subprotocol
        self._frames = frames
        self._abort = abort
        self._turns = loop_turns()
        self._unchecked: Any = None
        """A message that a cancelled call of `receive` has not returned."""
        self._sends_no_more = False

    async def receive(self) -> WebSocketMessage | Close:
        """The next message, or the way in which the peer ended the connection.

        A message that is too large, or that breaks the protocol, ends the connection too.
        """
        if self._turns.is_over():
            # Before anything is taken: who is cancelled meanwhile loses nothing.
            await asyncio.sleep(0)
        message = self._unchecked or await self._frames.receive()
        kind = message.type
        if kind is _TEXT:
            data: bytes = message.data
            if data.isascii() or await self._is_utf8(message):
                return WebSocketMessage(data)
            await self.close(Close(WSCloseCode.INVALID_TEXT))
            return Close(WSCloseCode.INVALID_TEXT)
        if kind is _BINARY:
            return WebSocketMessage(message.data, binary=True)
        if kind is _CLOSE:
            return Close(message.data or NO_CODE, message.extra or "")
        if kind is WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            # aiohttp has told the peer.
            self._sends_no_more = True
            return Close(message.data.code)
        return LOST

    async def send(self, message: WebSocketMessage) -> None:
        """Send a message as fast as the peer takes it. Raises ConnectionError."""
        kind = _BINARY if message.binary else _TEXT
        await self._frames.send_frame(message.data, kind)

    async def _is_utf8(self, message: Any) -> bool:
        data, decoder = message.data, _utf8()
        self._unchecked, is_valid = message, True
        try:
            for start in range(0, len(data), _DECODED_AT_ONCE):
                decoder.decode(data[start : start + _DECODED_AT_ONCE])
                await self._turns.pause_if_over()
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            is_valid = False
        self._unchecked = None
        return is_valid

    async def close(self, close: Close) -> None:
        """Send a close frame, once; where none may be sent, end the connection without one."""
        if close.aborted:
            self.abort()
        if self._sends_no_more:
            return
        self._sends_no_more = True
        data = b"" if close.code == NO_CODE else _CODE.pack(close.code) + close.reason.encode()
        try:
            await self._frames.send_frame(data, _CLOSE)
        except ConnectionError:
            # The peer has left.
            return

    async def end(self, close: Close) -> Close:
        """Close the connection, and return the peer's answer, which may come after messages."""
        await self.close(close)
        try:
            async with asyncio.timeout(CLOSE_S):
                while not isinstance(message := await self.receive(), Close):
                    pass
        except TimeoutError:
            self.abort()
            return LOST
        return message

    def abort(self) -> None:
        """End the connection without a close frame."""
        self._sends_no_more = True
        self._abort()
