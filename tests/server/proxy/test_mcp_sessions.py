"""Sessions of the MCP SDK over both HTTP transports: recorded, and replayed without their server."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from tapeway.core.model.control import Delivery, Mode
from tapeway.engine import open_streams
from tapeway.ports import CassetteStore
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import RunningProxy, running_proxy

TOOLS = MCPServer("tools")


@TOOLS.tool()
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


@pytest.fixture(scope="module", params=["sse", "mcp"])
def service(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server, whose path names its transport."""
    app = TOOLS.sse_app() if request.param == "sse" else TOOLS.streamable_http_app()
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/{request.param}"
    server.should_exit = True
    thread.join()


class Left(Exception):
    """The client went without a word."""


async def session(url: str, *, leaves: bool) -> list[str]:
    """What a client gets in a session, which it closes or leaves open."""
    client = sse_client if url.endswith("/sse") else streamable_http_client
    found: list[str] = []
    try:
        async with client(url) as streams, ClientSession(streams[0], streams[1]) as own:
            await own.initialize()
            found += [tool.name for tool in (await own.list_tools()).tools]
            for city in ("Oslo", "Rome", "Oslo"):
                called = await own.call_tool("weather", {"city": city})
                found += [content.text for content in called.content if content.type == "text"]
            if leaves:
                _leave()
    except* Left:
        pass
    return found


def _leave() -> None:
    raise Left


@asynccontextmanager
async def serving(
    upstream: str, store: CassetteStore, mode: Mode, delivery: Delivery
) -> AsyncIterator[RunningProxy]:
    options = ProxyOptions(max_body=2**20, body_idle_s=10, delivery=delivery)
    routes = {"tools": upstream}
    async with running_proxy(mode=mode, routes=routes, store=store, options=options) as proxy:
        yield proxy


@pytest.mark.parametrize("leaves", [False, True], ids=["closed", "left"])
@pytest.mark.parametrize(("mode", "delivery"), [("auto", "buffer"), ("record", "stream")])
async def test_sessions_replay_without_their_server(
    service: str, mode: Mode, delivery: Delivery, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "PAUSE_S", 0.0)
    root, _, path = service.rpartition("/")
    store = MemoryStore()
    async with serving(root, store, mode, delivery) as proxy, asyncio.timeout(60):
        # The second one begins after the first has ended, and is another session.
        live = [await session(f"{proxy.url}/tools/{path}", leaves=leaves) for _ in range(2)]
        await proxy.broker.eject()
        assert {answer.outcome for answer in proxy.journal} <= {"recorded", "replayed"}

    async with serving("http://never", store, "replay", delivery) as proxy, asyncio.timeout(60):
        again = [await session(f"{proxy.url}/tools/{path}", leaves=leaves) for _ in range(2)]
        assert {answer.outcome for answer in proxy.journal} == {"replayed"}

    assert live[0] == ["weather", "sunny in Oslo", "sunny in Rome", "sunny in Oslo"]
    assert live[1] == live[0]
    assert again == live
