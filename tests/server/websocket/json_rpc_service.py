"""A service that answers calls of JSON-RPC, and goes on behind each answer."""

import json
from collections.abc import Callable, Sequence

from aiohttp import web

from tests.server.websocket.conversing import Event
from tests.server.websocket.websocket_service import Handler


def news(*params: object) -> Event:
    """A notification of the service."""
    return {"jsonrpc": "2.0", "method": "news", "params": [*params]}


async def notify(
    socket: web.WebSocketResponse, asked: Event, texts: Sequence[object] = range(3)
) -> None:
    """Answer a call, and go on with a notification for each of these."""
    if "id" in asked:
        await socket.send_json({"jsonrpc": "2.0", "id": asked["id"], "result": "done"})
    for text in texts:
        await socket.send_json(news(asked["method"], text))


def notifying(count: int = 3, text: Callable[[int], object] = lambda number: number) -> Handler:
    """Answer each call so."""

    async def answer(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            await notify(
                socket, json.loads(message.data), [text(number) for number in range(count)]
            )
        await socket.close()

    return answer
