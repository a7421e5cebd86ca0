"""`tapeway mcp` with the protocol's own client, over standard input and output."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from tapeway.cli.mcp.tools import Tools, make_server
from tapeway.settings.options import Settings
from tapeway.stores.remote.client import RemoteAddress
from tapeway.testing import ThreadedStandIn
from tests.process.serving import DEADLINE_S, Tapeway
from tests.support import fork_server
from tests.support.canary import sightings

READING = ["diff_cassettes", "last_misses", "list_cassettes", "show_conversation"]


@asynccontextmanager
async def a_miss(folder: Path) -> AsyncIterator[tuple[Tapeway, bytes]]:
    """A tapeway that replays one recording, and a request that missed it: its user is a key."""
    with ThreadedStandIn() as upstream:
        async with Tapeway(folder, "--route", f"openai={upstream.url}") as tapeway:
            assert (await _ask(tapeway, _body("first"))).outcome == b"recorded"
            await tapeway.admin("PUT", "/api/v1/mode", {"mode": "replay"})
            other = _body(tapeway.key)
            assert (await _ask(tapeway, other)).outcome == b"miss"
            yield tapeway, other


async def test_an_agent_finds_a_miss_and_accepts_its_rule_over_stdio(tmp_path: Path) -> None:
    async with a_miss(tmp_path) as (tapeway, missed):
        server = StdioServerParameters(
            command=str(fork_server.program()),
            args=["mcp", "--allow-writes"],
            env={"TAPEWAY_ADMIN_URL": str(tapeway.ready["admin"])},
            cwd=tmp_path,
        )
        async with asyncio.timeout(DEADLINE_S), Client(server) as client:
            assert await _tools(client) == ["accept_suggestion", *READING]
            [listed] = (await _call(client, "list_cassettes"))["cassettes"]
            [miss] = (await _call(client, "last_misses"))["misses"]
            talk = await _call(client, "show_conversation", cassette="default")
            same = await _call(client, "diff_cassettes", first="default", second="default")
            accepted = await _call(client, "accept_suggestion", miss=miss["id"])
        assert (await _ask(tapeway, missed)).outcome == b"replayed"

    assert (listed["name"], listed["interactions"]) == ("default", 1)
    assert (miss["method"], miss["path"]) == ("POST", "/v1/chat/completions")
    assert [difference["path"] for difference in miss["nearest"][0]["differences"]] == ["body.user"]
    assert "body.user" in miss["suggestion"]
    assert [message["role"] for message in talk["messages"]] == ["user", "assistant"]
    assert talk["messages"][0]["content"] == "Name a spider."
    assert (same["equal"], same["different"]) == (1, [])
    assert accepted["rules"]["ignore"] == ["body.user"]
    seen = json.dumps([listed, miss, talk, same, accepted]).encode()
    assert sightings({"the key": tapeway.key}, {"what the agent saw": seen}) == []


@pytest.mark.slow
async def test_an_interrupt_ends_it_while_it_waits_for_input(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(str(fork_server.program()), "mcp", "--store", "cassettes"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    process.stdin.write(json.dumps(ping).encode() + b"\n")
    async with asyncio.timeout(DEADLINE_S):
        assert await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == -signal.SIGINT


async def test_a_token_that_is_wrong_is_said_with_its_variable(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--admin-token", "the-right-token-0123456789") as tapeway:
        url, wrong = str(tapeway.ready["admin"]), "a-wrong-token-9876543210"
        address = RemoteAddress(url, wrong, token_variable="TAPEWAY_ADMIN_TOKEN")
        async with Client(make_server(Tools(Settings(), address), allow_writes=False)) as client:
            [said] = (await client.call_tool("list_cassettes", {})).content

    assert isinstance(said, TextContent)
    assert "set TAPEWAY_ADMIN_TOKEN to the one of its --admin-token" in said.text
    assert wrong not in said.text


async def _tools(client: Client) -> list[str]:
    return sorted(tool.name for tool in (await client.list_tools()).tools)


async def _call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    assert isinstance(answer.structured_content, dict)
    return answer.structured_content


def _body(user: str) -> bytes:
    message = {"role": "user", "content": "Name a spider."}
    return json.dumps({"model": "gpt-4o", "messages": [message], "user": user}).encode()


async def _ask(tapeway: Tapeway, body: bytes) -> Any:
    typed = ("Content-Type", "application/json")
    return await tapeway.ask("/openai/v1/chat/completions", body, typed)
