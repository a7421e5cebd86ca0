"""What `tapeway mcp` refuses before it serves."""

import sys
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from tests.cli.invocation import run_tapeway


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "calls", "--admin", "http://127.0.0.1:1"], "leave out --admin"),
        (["--store", "calls", "--allow-writes"], "leave out --allow-writes"),
        (
            ["--admin", "ftp://host"],
            "--admin: this address of a tapeway cannot be used, it is no http",
        ),
    ],
)
def test_what_cannot_be_served_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run_tapeway(capsys, "mcp", *arguments)

    assert (code, out) == (2, "")
    assert message in err


FLAG = ["--store", "calls"]


@pytest.mark.parametrize(
    ("arguments", "variables", "misses"),
    [
        ([], {}, True),
        (FLAG, {}, False),
        ([], {"TAPEWAY_STORE": "calls"}, False),
        (FLAG, {"TAPEWAY_ADMIN_URL": "http://127.0.0.1:1"}, False),
        ([], {"TAPEWAY_STORE": "calls", "TAPEWAY_ADMIN_URL": "http://127.0.0.1:1"}, False),
        (["--admin", "http://127.0.0.1:1"], {"TAPEWAY_STORE": "calls"}, True),
        (["--allow-writes"], {"TAPEWAY_STORE": "calls"}, True),
    ],
)
def test_a_store_means_the_same_as_a_flag_and_as_a_variable(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    variables: dict[str, str],
    misses: bool,
) -> None:
    offered: set[str] = set()

    async def serve(server: MCPServer[Any]) -> None:  # in place of the one on standard input
        async with Client(server) as client:
            offered.update(tool.name for tool in (await client.list_tools()).tools)

    monkeypatch.setattr(MCPServer, "run_stdio_async", serve)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert run_tapeway(capsys, "mcp", *arguments)[0] == 0
    assert "list_cassettes" in offered
    assert ("last_misses" in offered) == misses


def test_without_the_package_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.startswith("tapeway.cli.mcp.") and name != "tapeway.cli.mcp.command":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "mcp.server.mcpserver")
    monkeypatch.setattr(sys, "meta_path", [_NotInstalled(), *sys.meta_path])

    code, _, err = run_tapeway(capsys, "mcp")

    assert code == 2
    assert "pip install 'tapeway[mcp]'" in err


class _NotInstalled:
    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "mcp.server.mcpserver":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
