"""Passes messages on between two connections until either ends."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import WSCloseCode

from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.engine.open_streams import Signal
from tapeway.ports import UpstreamSocket
from tapeway.upstream.message_socket import CLOSE_S, LOST, MessageSocket

GOING_AWAY = Close(WSCloseCode.GOING_AWAY, "tapeway is stopping")

Seen = Callable[[WebSocketMessage | Close, bool], Awaitable[None]]
"""Called before a message or the end is passed on; true means that the client is the sender."""

_Socket = MessageSocket | UpstreamSocket


async def relay(
    client: MessageSocket,
    upstream: UpstreamSocket,
    stopping: Signal,
    seen: Seen | None = None,
) -> None:
    """Relay all messages until the connection has ended on both sides.

    The relay passes on a close frame and the answering close frame: each side gets the opposite
    side's code. If either side is lost without a close frame, so is the opposite side.
    """
    both = _Relay(client, upstream, seen)
    try:
        async with asyncio.TaskGroup() as tasks:
            with stopping.listening(lambda: tasks.create_task(both.stop())):
                tasks.create_task(both.pass_on(upstream, client, by_client=False))
                await both.pass_on(client, upstream, by_client=True)
    finally:
        both.end()


class _Relay:
    """Both directions of a connection. One task for each: there may be thousands of connections."""

    __slots__ = ("_client", "_patience", "_seen", "_upstream")

    def __init__(self, client: MessageSocket, upstream: UpstreamSocket, seen: Seen | None) -> None:
        self._client = client
        self._upstream = upstream
        self._seen = seen
        self._patience: asyncio.TimerHandle | None = None

    async def pass_on(self, source: _Socket, target: _Socket, *, by_client: bool) -> None:
        """Pass on all messages of a side, and the end."""
        seen = self._seen
        while not isinstance(message := await source.receive(), Close):
            if seen is not None:
                # While a long message goes out, the other side may answer already, or leave.
                await seen(message, by_client)
            try:
                await target.send(message)
            except ConnectionError:
                # The side of the target tells how the connection ended.
                message = LOST
                break
        if seen is not None:
            await seen(message, by_client)
        await target.close(message)
        self._expect_close()

    async def stop(self) -> None:
        """Close both sides, unless either has ended."""
        if self._patience is not None:
            return
        if self._seen is not None:
            await self._seen(GOING_AWAY, False)
        await self._client.close(GOING_AWAY)
        await self._upstream.close(GOING_AWAY)
        self._expect_close()

    def end(self) -> None:
        """Both sides have ended."""
        if self._patience is not None:
            self._patience.cancel()

    def _expect_close(self) -> None:
        """Cut both sides off if either does not answer the close frame in time."""
        if self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(CLOSE_S, self._abort)

    def _abort(self) -> None:
        self._client.abort()
        self._upstream.abort()
