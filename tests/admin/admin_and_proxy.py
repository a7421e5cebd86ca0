"""A proxy and its admin listener on loopback, with a live service that does as the test says."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse, ClientSession, ClientTimeout, web

from tapeway.admin.app import make_application
from tapeway.admin.listener import AdminRunner
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request, ResponseHead
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestIds, RequestJournal
from tapeway.engine.recording.selection import Policy
from tapeway.loop_guard import LoopGuard
from tapeway.ports import NONE_OPEN, CassetteStore, OnChunks, OpenConnections
from tapeway.server.front import FrontServer
from tapeway.server.listeners import listen
from tapeway.server.listeners import mount as mount_proxy
from tapeway.server.proxy import Proxy, ProxyOptions
from tapeway.stores.memory import MemoryStore

UPSTREAM = "http://service.invalid"
MIB = 1024 * 1024
_PATIENCE_S = 60.0
"""What never ends is a failure, not a hang."""


@dataclass(slots=True)
class LiveAnswer:
    """An answer that is all there already."""

    head: ResponseHead
    body: bytes

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        on_chunks([self.body], 1.0)
        return False

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self.body

    def elapsed_ms(self) -> float:
        return 1.0


@dataclass(slots=True)
class Service:
    """The live service: it answers each request with its number, once the gate is open."""

    connections: int = 0
    open_connections: OpenConnections = NONE_OPEN
    headers: tuple[tuple[bytes, bytes], ...] = ((b"Content-Type", b"application/json"),)
    body: bytes | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Queue[Request] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self.gate.set()

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncIterator[LiveAnswer]:
        self.connections += 1
        number = self.connections
        self.asked.put_nowait(request)
        await self.gate.wait()
        body = json.dumps({"answer": number}).encode() if self.body is None else self.body
        yield LiveAnswer(ResponseHead(200, "OK", self.headers), body)


@dataclass(slots=True)
class World:
    """Both listeners, and clients for them."""

    broker: Broker
    journal: RequestJournal
    service: Service
    admin_port: int
    proxy_port: int
    http: ClientSession
    token: str | None

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def proxy(self) -> str:
        return f"http://127.0.0.1:{self.proxy_port}"

    async def call(
        self, method: str, path: str, sent: object = None, **more: Any
    ) -> ClientResponse:
        """An admin call, with its whole answer read."""
        headers = {**more.pop("headers", {})}
        if self.token is not None:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if sent is not None:
            more["json"] = sent
        url = self.admin + path
        async with self.http.request(method, url, headers=headers, **more) as response:
            await response.read()
            return response

    async def got(self, path: str) -> Any:
        """What a GET answers, which has to be a success."""
        response = await self.call("GET", path)
        assert response.status == 200, await response.text()
        return await response.json()

    async def octets(self, path: str) -> bytes:
        """The same as they came."""
        response = await self.call("GET", path)
        assert response.status == 200, await response.text()
        return (await response.text()).encode()

    async def done(self, method: str, path: str, sent: object = None) -> Any:
        """What another call answers, which has to be a success."""
        response = await self.call(method, path, sent)
        assert response.status == 200, await response.text()
        return await response.json()

    async def ask(self, path: str = "/v1/models", *, cassette: str | None = None) -> ClientResponse:
        """A request through the proxy, with its whole answer read."""
        headers = {} if cassette is None else {"Tapeway-Cassette": cassette}
        async with self.http.get(self.proxy + path, headers=headers) as response:
            await response.read()
            return response

    async def raw(self, sent: bytes) -> bytes:
        """What comes back for these octets until the admin listener closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin_port)
        try:
            writer.write(sent)
            await writer.drain()
            async with asyncio.timeout(_PATIENCE_S):
                return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def world(
    *,
    token: str | None = None,
    mode: Mode = "auto",
    service: Service | None = None,
    store: CassetteStore | None = None,
    clock: Callable[[], float] = time.monotonic,
    heartbeat_s: float = 3600.0,
    listener_host: str = "127.0.0.1",
) -> AsyncIterator[World]:
    """Everything started, and stopped in reverse."""
    service, journal = service or Service(), RequestJournal(1000)
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(
            Broker(
                store or MemoryStore(),
                service,
                mode=mode,
                cassette="default",
                routes=RouteTable({}, Route("default", UPSTREAM)),
                policy=Policy(),
                new_head=_new_head,
                journal=journal,
            )
        )
        application = make_application(
            broker,
            journal,
            token=token,
            listener=(listener_host, 8081),
            version="1.2.3",
            heartbeat_s=heartbeat_s,
            clock=clock,
        )
        admin_port = await _mount(stack, AdminRunner(application, shutdown_timeout=1.0))
        listener = listen("--listen", "127.0.0.1", 0)
        await mount_proxy(stack, FrontServer(_proxy(broker, journal)), listener)
        proxy_port = listener.port
        http = await stack.enter_async_context(
            ClientSession(timeout=ClientTimeout(total=_PATIENCE_S))
        )
        yield World(broker, journal, service, admin_port, proxy_port, http, token)
        service.gate.set()


def _proxy(broker: Broker, journal: RequestJournal) -> Proxy:
    return Proxy(
        broker,
        journal,
        lambda target, headers: None,
        ProxyOptions(max_body=MIB, body_idle_s=5.0),
        LoopGuard(),
        clock=lambda: 0.0,
        now=lambda: 1_700_000_000.25,
        ids=RequestIds("id"),
    )


def _new_head() -> CassetteHead:
    return CassetteHead("2026-01-02T03:04:05+00:00", "a-run")


async def _mount(stack: AsyncExitStack, runner: web.AppRunner | web.ServerRunner) -> int:
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return int(runner.addresses[0][1])
