"""The tools as a client in the same process calls them."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tapeway.cli.mcp.tools import Tools, make_server
from tapeway.settings.options import Settings
from tapeway.stores.remote.client import RemoteAddress
from tests.cli.invocation import written
from tests.conversations.recorded_calls import CHAT, call, user
from tests.support.ports import free_port


def offline() -> Client:
    return Client(make_server(Tools(Settings(), None), allow_writes=False))


def online(url: str) -> Client:
    return Client(make_server(Tools(Settings(), RemoteAddress(url)), allow_writes=True))


async def called(client: Client, tool: str, **arguments: object) -> Any:
    async with client:
        return await client.call_tool(tool, arguments)


async def test_a_store_is_read_without_a_running_tapeway() -> None:
    written("smoke", _greeting("Hello."))
    written("smoke-new", _greeting("Bye."))

    async with offline() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        listed = await client.call_tool("list_cassettes", {})
        differ = await client.call_tool("diff_cassettes", {"first": "smoke", "second": "smoke-new"})

    assert sorted(tools) == ["diff_cassettes", "list_cassettes", "show_conversation"]
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
    assert listed.structured_content is not None
    assert [cassette["name"] for cassette in listed.structured_content["cassettes"]] == [
        "smoke",
        "smoke-new",
    ]
    assert differ.structured_content is not None
    [pair] = differ.structured_content["different"]
    assert (pair["first"], pair["second"]) == (0, 0)


async def test_a_conversation_comes_in_pages() -> None:
    written("smoke", _greeting("Hello."))

    async with offline() as client:
        first = await client.call_tool("show_conversation", {"cassette": "smoke", "limit": 1})
        assert first.structured_content is not None
        after = first.structured_content["next"]
        rest = await client.call_tool("show_conversation", {"cassette": "smoke", "after": after})

    assert rest.structured_content is not None
    assert [message["role"] for message in first.structured_content["messages"]] == ["user"]
    assert [message["role"] for message in rest.structured_content["messages"]] == ["assistant"]
    assert rest.structured_content["next"] is None


@pytest.mark.parametrize("name", ["secret.json", "../secret", "http://127.0.0.1:1#smoke"])
async def test_no_tool_reads_a_file_or_another_store(name: str) -> None:
    written("smoke", _greeting("Hello."))
    Path("secret.json").write_bytes(Path("cassettes/smoke.json").read_bytes())

    answer = await called(offline(), "show_conversation", cassette=name)

    assert answer.is_error
    assert "Hello." not in str(answer.content)


async def test_a_cassette_that_does_not_exist_is_named_with_those_that_come_near() -> None:
    written("smoke", _greeting("Hello."))

    answer = await called(offline(), "show_conversation", cassette="smoke-1")

    assert answer.is_error
    assert "is smoke meant?" in answer.content[0].text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("last_misses", {}), ("list_cassettes", {}), ("accept_suggestion", {"miss": "1"})],
)
async def test_a_tapeway_that_does_not_run_is_named(tool: str, arguments: dict[str, Any]) -> None:
    url = f"http://127.0.0.1:{free_port()}"

    answer = await called(online(url), tool, **arguments)

    assert answer.is_error
    assert f"{url} cannot be reached: see whether tapeway runs there" in answer.content[0].text


def _greeting(text: str) -> Any:
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
    return call(0, CHAT, {"model": "gpt-4o", "messages": [user("Greet me.")]}, answer)
