"""Passes the messages of two connections on to each other until one ends."""

import asyncio

from aiohttp import WSCloseCode

from tapeway.core.websocket.messages import Close
from tapeway.engine.open_streams import Signal
from tapeway.ports import UpstreamSocket
from tapeway.upstream.message_socket import CLOSE_S, LOST, MessageSocket

GOING_AWAY = Close(WSCloseCode.GOING_AWAY, "tapeway is stopping")

_Socket = MessageSocket | UpstreamSocket


async def relay(client: MessageSocket, upstream: UpstreamSocket, stopping: Signal) -> None:
    """Relay all messages until the connection has ended on both sides.

    A close frame goes to the other side, whose answer comes back: so each side gets the code that
    the other one sent. A side that is lost without a close frame costs the other one its connection
    in the same way.
    """
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        passing = {
            tasks.create_task(_pass_on(client, upstream)),
            tasks.create_task(_pass_on(upstream, client)),
        }
        ending = tasks.create_task(stop.wait())
        with stopping.told(stop.set):
            await asyncio.wait({*passing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            await client.close(GOING_AWAY)
            await upstream.close(GOING_AWAY)
        ending.cancel()
        _, waiting = await asyncio.wait(passing, timeout=CLOSE_S)
        if waiting:
            # One side does not answer the close frame.
            client.abort()
            upstream.abort()


async def _pass_on(source: _Socket, target: _Socket) -> None:
    while not isinstance(found := await source.receive(), Close):
        try:
            await target.send(found)
        except ConnectionError:
            # The target's own side tells how it ended.
            found = LOST
            break
    await target.close(found)
