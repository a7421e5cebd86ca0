"""docs/mcp.md: what it has people paste starts `tapeway mcp`, and its tools are those there are."""

import json
import re
import shlex
import tomllib
from typing import Any

import pytest

from tapeway.cli.mcp.command import mcp
from tapeway.cli.mcp.tools import Tools, make_server
from tapeway.settings.options import Settings
from tapeway.stores.remote.client import RemoteAddress
from tests.support.markdown import ROOT, blocks

TEXT = (ROOT / "docs/mcp.md").read_text("utf-8")


def _started(language: str, text: str) -> list[str]:
    """The command that an agent starts by a block."""
    if language == "sh":
        return shlex.split(text.partition(" -- ")[2])
    value = tomllib.loads(text)["mcp_servers"] if language == "toml" else _servers(text)
    server = value["tapeway"]
    return [server["command"], *server["args"]]


def _servers(text: str) -> dict[str, Any]:
    value = json.loads(text)
    assert [*value] == ["mcpServers"]
    found: dict[str, Any] = value["mcpServers"]
    return found


@pytest.mark.parametrize("section", ["Claude Code", "Codex", "Cursor"])
def test_what_is_pasted_starts_the_server(section: str) -> None:
    found = [_started(block.language, block.text) for block in blocks("docs/mcp.md", section)]

    assert found
    for program, command, *arguments in found:
        assert (program, command) == ("tapeway", "mcp")
        mcp.make_context("mcp", arguments)


async def test_its_tools_are_those_there_are() -> None:
    tools = Tools(Settings(), RemoteAddress("http://127.0.0.1:8081"))
    reading = {tool.name for tool in await make_server(tools, allow_writes=False).list_tools()}
    every = {tool.name for tool in await make_server(tools, allow_writes=True).list_tools()}

    rows = re.findall(r"^\| `(\w+_\w+)` \| (.*) \|$", TEXT.partition("## Options")[0], re.MULTILINE)

    assert {name for name, _ in rows} == every
    assert {name for name, text in rows if "--allow-writes" not in text} == reading


def test_its_options_are_those_of_the_command() -> None:
    options = {name for param in mcp.params for name in param.opts}
    shown = set(re.findall(r"--[a-z][a-z-]+", TEXT)) - {"--admin-listen"}

    assert shown <= options
    assert {"--admin", "--allow-writes", "--store"} <= shown
