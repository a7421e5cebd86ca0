"""Passes the messages of two connections on to each other until one ends."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import WSCloseCode

from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.engine.open_streams import Signal
from tapeway.ports import UpstreamSocket
from tapeway.upstream.message_socket import CLOSE_S, LOST, MessageSocket

GOING_AWAY = Close(WSCloseCode.GOING_AWAY, "tapeway is stopping")

Seen = Callable[[WebSocketMessage | Close, bool], Awaitable[None]]
"""Takes each message and the end before they are passed on, and whether the client sent them."""

_Socket = MessageSocket | UpstreamSocket


async def relay(
    client: MessageSocket,
    upstream: UpstreamSocket,
    stopping: Signal,
    seen: Seen | None = None,
) -> None:
    """Relay all messages until the connection has ended on both sides.

    A close frame goes to the other side, whose answer comes back: so each side gets the code that
    the other one sent. A side that is lost without a close frame costs the other one its connection
    in the same way.
    """
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        passing = {
            tasks.create_task(pass_on(client, upstream, seen, by_client=True)),
            tasks.create_task(pass_on(upstream, client, seen, by_client=False)),
        }
        ending = tasks.create_task(stop.wait())
        with stopping.told(stop.set):
            await asyncio.wait({*passing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            if seen is not None:
                await seen(GOING_AWAY, False)
            await client.close(GOING_AWAY)
            await upstream.close(GOING_AWAY)
        ending.cancel()
        _, waiting = await asyncio.wait(passing, timeout=CLOSE_S)
        if waiting:
            # One side does not answer the close frame.
            client.abort()
            upstream.abort()


async def pass_on(source: _Socket, target: _Socket, seen: Seen | None, *, by_client: bool) -> None:
    """Pass on all messages of one side, and how it ends."""
    while not isinstance(found := await source.receive(), Close):
        if seen is not None:
            # While a long message goes out, the other side may answer it already, or leave.
            await seen(found, by_client)
        try:
            await target.send(found)
        except ConnectionError:
            # The side of the target tells how the connection ended.
            found = LOST
            break
    if seen is not None:
        await seen(found, by_client)
    await target.close(found)
