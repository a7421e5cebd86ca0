"""The tools over HTTP: those may call whom the admin listener lets in, until a signal."""

import asyncio
import io
import json
import signal
import sys
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from tapeway.admin.auth import AdminGuard, GuessLimiter
from tapeway.cli.mcp.serving import GuardedApp, serve_http
from tapeway.settings.parsers import HostPort

TOKEN = "a-token-of-this-test"
ALLOWED = {"host": "127.0.0.1:8085", "authorization": f"Bearer {TOKEN}"}


async def status(token: str | None, headers: dict[str, str]) -> tuple[int, str]:
    """Status and code of the error of a call; 200 if it reaches the tools."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def tools(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"error": {"code": ""}}'})

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 4000),
    }
    guard = AdminGuard("127.0.0.1", token, GuessLimiter(lambda: 0.0))
    await GuardedApp(tools, guard)(scope, receive, send)
    start, body = sent
    return start["status"], json.loads(body["body"])["error"]["code"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, (200, "")),
        ({"authorization": "Bearer another"}, (401, "unauthorized")),
        ({"authorization": ""}, (401, "unauthorized")),
        ({"host": "attacker.example"}, (403, "host_not_allowed")),
        ({"origin": "https://attacker.example"}, (403, "cross_origin")),
        ({"sec-fetch-site": "same-site"}, (403, "cross_origin")),
        ({"origin": "http://127.0.0.1:8085"}, (200, "")),
    ],
)
async def test_a_call_passes_the_guard_of_the_admin_api(
    changed: dict[str, str], expected: tuple[int, str]
) -> None:
    assert await status(TOKEN, ALLOWED | changed) == expected


async def test_without_a_token_the_other_checks_stay() -> None:
    assert await status(None, {"host": "localhost:8085"}) == (200, "")
    assert await status(None, {"host": "attacker.example"}) == (403, "host_not_allowed")


class _Reader(io.StringIO):
    """Standard output whose reader asks for the end as soon as it has read the first line."""

    def flush(self) -> None:
        signal.raise_signal(signal.SIGTERM)


async def test_who_has_read_the_address_can_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = _Reader()
    monkeypatch.setattr(sys, "stdout", printed)

    async with asyncio.timeout(60):
        await serve_http(MCPServer("tapeway"), HostPort("127.0.0.1", 0), None)

    assert json.loads(printed.getvalue())["mcp"].endswith("/mcp")
