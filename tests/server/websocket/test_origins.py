"""WebSocket clients that name an origin: programs, and pages of this machine."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin

from tapeway.testing import StandIn
from tests.clients.node.npm_project import INSTALLED, environment, skip_unless_installed
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.conversing import ENDS, RESPONSES, create, turn

NODE = """
import { WebSocket } from "%s/node_modules/undici/index.js";
const [, , url, origin, request] = process.argv;
const socket = new WebSocket(url, origin ? { headers: { origin } } : {});
socket.onopen = () => socket.send(request);
socket.onmessage = ({ data }) => {
  const { type } = JSON.parse(data);
  console.log(type);
  if (type === "response.completed") socket.close();
};
socket.onerror = () => console.log("refused");
"""

ORIGINS = ["http://localhost:3000", "http://web", "OWN"]


async def by_websockets(url: str, origin: str) -> list[str]:
    async with connect(url, origin=Origin(origin)) as client:
        return [event["type"] for event in await turn(client, create("hello"))]


async def by_aiohttp(url: str, origin: str) -> list[str]:
    said: list[str] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(url, origin=origin) as client:
        await client.send_json(create("hello"))
        while not said or said[-1] not in ENDS:
            said.append((await client.receive_json())["type"])
    return said


@pytest.mark.parametrize("ask", [by_websockets, by_aiohttp])
@pytest.mark.parametrize("origin", ORIGINS)
async def test_a_client_of_python_that_names_an_origin_is_recorded_and_replayed(
    ask: Callable[[str, str], Awaitable[list[str]]], origin: str
) -> None:
    async with StandIn() as service, running_proxy(service.url, mode="auto") as proxy:
        url = proxy.url.replace("http", "ws", 1) + RESPONSES
        named = proxy.url if origin == "OWN" else origin
        live, replayed = await ask(url, named), await ask(url, named)

    assert replayed == live
    assert live[-1] == "response.completed"
    assert service.connections == 1


@pytest.mark.elsewhere
@pytest.mark.parametrize("origin", ["", *ORIGINS, "https://evil.example"])
async def test_a_client_of_node_that_names_an_origin_is_served_like_a_page(
    origin: str, tmp_path: Path
) -> None:
    skip_unless_installed()
    program = tmp_path / "program.mjs"
    program.write_text(NODE % INSTALLED)
    async with StandIn() as service, running_proxy(service.url, mode="auto") as proxy:
        named = proxy.url if origin == "OWN" else origin
        ended = await asyncio.to_thread(
            subprocess.run,
            ["node", str(program), proxy.url + RESPONSES, named, json.dumps(create("hello"))],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    said = ended.stdout.split()
    if origin == "https://evil.example":
        assert (said, service.connections) == (["refused"], 0), ended.stderr
    else:
        assert said[-1:] == ["response.completed"], ended.stderr
