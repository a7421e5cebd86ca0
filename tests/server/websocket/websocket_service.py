"""Services that speak WebSocket, on real sockets, and what they were asked."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

Handler = Callable[[web.WebSocketResponse], Awaitable[None]]
AskingHandler = Callable[[web.WebSocketResponse, web.Request], Awaitable[None]]


@dataclass
class Service:
    """A service that has begun: its URL, and the handshakes that it got."""

    url: str = ""
    handshakes: list[web.Request] = field(default_factory=list)
    closes: list[int | None] = field(default_factory=list)
    """How each connection ended: the client's code, None for a connection that was lost."""
    received: list[str | bytes] = field(default_factory=list)


@asynccontextmanager
async def serving(
    handler: Handler | None = None,
    *,
    protocols: tuple[str, ...] = (),
    headers: dict[str, str] | None = None,
    refusal: Callable[[web.Request], web.StreamResponse | None] = lambda request: None,
    asking: AskingHandler | None = None,
) -> AsyncIterator[Service]:
    """A service whose connections are handled so; without a handler it echoes.

    `asking` is a handler that looks at the handshake too.
    """
    service = Service()

    async def connected(request: web.Request) -> web.StreamResponse:
        service.handshakes.append(request)
        if (answer := refusal(request)) is not None:
            return answer
        socket = web.WebSocketResponse(
            protocols=protocols, autoclose=False, max_msg_size=64 * 1024 * 1024
        )
        socket.headers.update(headers or {})
        await socket.prepare(request)
        if asking is not None:
            await asking(socket, request)
        else:
            await (handler or _echo(service))(socket)
        return socket

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", connected)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    service.url = f"http://{host}:{port}"
    try:
        yield service
    finally:
        await runner.cleanup()


def _echo(service: Service) -> Handler:
    async def handle(socket: web.WebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type is WSMsgType.CLOSE:
                service.closes.append(message.data)
                await socket.close(code=message.data, message=(message.extra or "").encode())
                return
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                service.closes.append(None)
                return
            service.received.append(message.data)
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
            else:
                await socket.send_bytes(message.data)

    return handle
