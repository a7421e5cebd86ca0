"""Clients of WebSocket services for Node.js: recorded, and replayed twice without the service.

`make agents` installs the clients; the tests are skipped otherwise.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tapeway.testing import ThreadedStandIn
from tests.clients.agents.test_elsewhere import NODE_MODULES, PROGRAMS, need
from tests.server.websocket.gemini_service import answer_gemini
from tests.server.websocket.websocket_service import Handler, serving
from tests.support import fork_server
from tests.support.canary import sightings
from tests.support.company import company

pytestmark = pytest.mark.slow

KEY = "sk-live-socket-4f9d2c7b1e"
PACKAGES = {"responses": "ws", "graphql": "graphql-ws", "live": "@google/genai"}


async def _answer_graphql(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        asked = message.json()
        if asked["type"] == "connection_init":
            await socket.send_json({"type": "connection_ack"})
        elif asked["type"] == "subscribe":
            for number in range(3):
                payload = {"data": {"said": f"{asked['payload']['query']} {number}"}}
                await socket.send_json({"id": asked["id"], "type": "next", "payload": payload})
            await socket.send_json({"id": asked["id"], "type": "complete"})
    await socket.close()


@asynccontextmanager
async def _service(client: str) -> AsyncIterator[str]:
    """The URL of the service that a client asks."""
    async with AsyncExitStack() as stack:
        if client == "responses":
            yield stack.enter_context(ThreadedStandIn()).url
            return
        handler: Handler = _answer_graphql if client == "graphql" else answer_gemini
        protocols = ("graphql-transport-ws",) if client == "graphql" else ()
        yield (await stack.enter_async_context(serving(handler, protocols=protocols))).url


def _program(folder: Path) -> str:
    """The program, beside the packages that it needs: there Node looks for them."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "node_modules").symlink_to(NODE_MODULES)
    return str(shutil.copy(PROGRAMS / "node_sockets.mjs", programs))


@pytest.mark.parametrize("client", PACKAGES)
async def test_a_client_is_recorded_and_replayed_twice_without_its_service(
    tmp_path: Path, client: str
) -> None:
    need(NODE_MODULES / PACKAGES[client])
    program = _program(tmp_path)
    store = tmp_path / "store"

    async def run(mode: str, url: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(*fork_server.command(), "run", f"--mode={mode}", f"--upstream={url}", "--strict"),
            *(f"--store={store}", "--", "node", program, client),
            cwd=tmp_path,
            env=os.environ | {"OPENAI_API_KEY": KEY},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await process.communicate()
        assert process.returncode == 0, error.decode()
        return out.splitlines()[0]

    async with _service(client) as url:
        recorded = await run("record", url)
    replayed = [await run("replay", url) for _ in range(2)]

    assert len(json.loads(recorded)) >= 5
    assert replayed == [recorded, recorded]
    stored = {str(path): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert stored
    assert sightings({"the key": KEY}, stored) == []


@pytest.mark.parametrize("client", ["realtime", "realtimeByPackage"])
async def test_a_client_that_insists_on_wss_is_reached_by_run_tls(
    tmp_path: Path, client: str
) -> None:
    """Node 24 knows the variables that name a proxy; the one of this machine may not."""
    node = need(NODE_MODULES / ".bin" / "node")
    command = ("--", str(node), _program(tmp_path), client)
    async with company(tmp_path) as network:
        live = await network.run(*command)
        assert live.code == 0, live.err
    for _ in range(2):
        replayed = await network.run("--strict", *command, offline=True)
        assert (replayed.code, replayed.out) == (0, live.out), replayed.err

    assert json.loads(live.out)[-1]["type"] == "response.done"
