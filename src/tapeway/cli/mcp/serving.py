"""An MCP server on standard input and output, or over streamable HTTP behind the admin guard."""

import asyncio
import json
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from types import FrameType
from typing import Any, cast

import uvicorn
from aiohttp import HttpVersion, web
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from multidict import CIMultiDict

from tapeway.admin.auth import AdminGuard, GuessLimiter
from tapeway.core.json_text import dump
from tapeway.errors import AdminError, ConfigError
from tapeway.settings.parsers import HostPort

PATH = "/mcp"
_GRACE_S = 2
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[_Scope], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve one client until the client closes standard input; SIGINT ends the process."""
    # A thread waits for input, and asyncio's handler would wait for the thread.
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        await server.run_stdio_async()
    finally:
        signal.signal(signal.SIGINT, previous)


async def serve_http(server: MCPServer[Any], address: HostPort, token: str | None) -> None:
    """Serve until SIGTERM or SIGINT; prints a line of JSON with the URL first.

    Calls must name the listener, come from no page of a foreign origin, and carry the token if
    there is a token. Raises ConfigError for an address beyond loopback without a token, or one in
    use.
    """
    loop = asyncio.get_running_loop()
    guard = _guard(address, token, loop.time)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        # Every call stands alone, so that clients need not connect anew after a restart of the
        # server.
        stateless_http=True,
        json_response=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    with _bound_socket(address) as listener:
        config = uvicorn.Config(
            GuardedApp(app, guard),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        port = listener.getsockname()[1]
        serving = uvicorn.Server(config)

        def stop(number: int, frame: FrameType | None) -> None:
            serving.should_exit = True

        # Before the line is printed, since its reader may send a signal; uvicorn's own handlers come
        # later, and raise the signal again for these at the end.
        previous = {
            number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            print(json.dumps({"mcp": f"http://{HostPort(address.host, port)}{PATH}"}), flush=True)  # noqa: T201
            await serving.serve(sockets=[listener])
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class GuardedApp:
    """An ASGI application whose calls pass the guard of the admin API first."""

    def __init__(self, app: _App, guard: AdminGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "http":
            try:
                self._guard.check(cast(web.Request, _Call(scope)), public=False)
            except AdminError as exc:
                await _refuse(send, exc)
                return
        elif scope["type"] != "lifespan":
            return
        await self._app(scope, receive, send)


class _Call:
    """A request of ASGI as the guard reads one of aiohttp."""

    def __init__(self, scope: _Scope) -> None:
        major, _, minor = scope["http_version"].partition(".")
        self.version = HttpVersion(int(major), int(minor or 0))
        self.method = scope["method"]
        self.raw_path = scope["path"]
        self.raw_headers = scope["headers"]
        self.headers = CIMultiDict(
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.raw_headers]
        )
        self.remote = (scope.get("client") or ("",))[0]


def _guard(address: HostPort, token: str | None, clock: Callable[[], float]) -> AdminGuard:
    if token is None and not address.loopback:
        raise ConfigError(
            "other machines could call the tools: set --admin-token (TAPEWAY_ADMIN_TOKEN), or "
            "keep --http on 127.0.0.1"
        )
    return AdminGuard(address.host, token, GuessLimiter(clock))


def _bound_socket(address: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family)
    except OSError as exc:
        raise ConfigError(f"--http: cannot listen on {address} ({exc.strerror})") from exc


async def _refuse(send: _Send, exc: AdminError) -> None:
    body = dump({"error": {"code": exc.code, "message": exc.message}})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if exc.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": exc.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
