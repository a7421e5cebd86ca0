"""What tests of WebSocket connections share: a client, its requests, and how it reads answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tapeway.core.model.control import Delivery
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB

Event = dict[str, Any]

RESPONSES = "/v1/responses"
REALTIME = "/v1/realtime?model=gpt-realtime"
ENDS = ("response.completed", "error")
"""The types of events that end a turn of the stand-in and of the services of these tests."""

_DEADLINE_S = 60
"""Far more than any answer takes: a test that hangs is to fail."""


def delivered(delivery: Delivery = "buffer", **more: Any) -> ProxyOptions:
    """The options of a proxy that hands answers out so."""
    return ProxyOptions(max_body=8 * MIB, body_idle_s=10, delivery=delivery, **more)


@asynccontextmanager
async def connected(
    url: str,
    path: str = RESPONSES,
    headers: Mapping[str, str] | None = None,
    protocols: Sequence[str] = (),
) -> AsyncIterator[ClientConnection]:
    """A connection to a proxy."""
    offered = [cast(Subprotocol, protocol) for protocol in protocols]
    async with connect(
        url.replace("http", "ws", 1) + path,
        additional_headers=headers,
        subprotocols=offered or None,
        max_size=None,
    ) as client:
        yield client


def create(text: str, **more: object) -> Event:
    """A request of the Responses API."""
    return {"type": "response.create", "model": "gpt-5", "input": text, **more}


def call(id: object, method: str = "echo", **more: object) -> Event:
    """A call of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": id, "method": method, **more}


async def next_event(client: ClientConnection) -> Event:
    """The next message of the service."""
    async with asyncio.timeout(_DEADLINE_S):
        found: Event = json.loads(await client.recv())
    return found


async def next_events(client: ClientConnection, count: int) -> list[Event]:
    """The next messages of the service."""
    return [await next_event(client) for _ in range(count)]


async def turn(client: ClientConnection, asked: Event) -> list[Event]:
    """The events that answer a request of the Responses API, up to the one that ends the turn."""
    await client.send(json.dumps(asked))
    found = [await next_event(client)]
    while found[-1]["type"] not in ENDS:
        found.append(await next_event(client))
    return found
