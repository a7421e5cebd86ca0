"""A program that speaks to a service in a session, first recorded, then replayed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection, connect

from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.websocket.websocket_service import Handler, serving

Program = Callable[[ClientConnection], Awaitable[Any]]


@asynccontextmanager
async def recorded(
    handler: Handler, *programs: Program, path: str = "/session"
) -> AsyncIterator[RunningProxy]:
    """A proxy that replays what these programs, one after the other, have recorded."""
    async with serving(handler) as service, running_proxy(service.url, mode="record") as proxy:
        for program in programs:
            await ran(proxy, program, path)
        await proxy.broker.set_mode("replay")
        yield proxy
        assert len(service.handshakes) == len(programs)


async def ran(proxy: RunningProxy, program: Program, path: str = "/session") -> Any:
    """What a program returns that is connected through the proxy."""
    async with connect(proxy.url.replace("http", "ws") + path) as client:
        result = await program(client)
    await proxy.proxy.wait_until_idle()
    return result


async def received(client: ClientConnection) -> str | bytes:
    """The next message for a client."""
    return await asyncio.wait_for(client.recv(), 60)


async def said(client: ClientConnection) -> Any:
    """The next message for a client, JSON read."""
    message = await received(client)
    return json.loads(message) if message[:1] in ("{", "[") else message


async def tell(client: ClientConnection, *values: object) -> None:
    """Send JSON messages."""
    for value in values:
        await client.send(json.dumps(value))


async def heard(socket: web.WebSocketResponse) -> str | bytes | None:
    """The client's next message; None once the client has closed the connection."""
    message = await socket.receive()
    if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
        data: str | bytes = message.data
        return data
    await socket.close(code=1000)
    return None
