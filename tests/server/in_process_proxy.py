"""A proxy listener in the process of the test, with real sockets on both sides."""

import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import Literal

from tapeway.core.http.routing import DEFAULT_ROUTE, Route, RouteTable
from tapeway.core.http.sigv4 import Signing
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.redaction.known_values import NOTHING_ALLOWED, Allowed
from tapeway.engine.broker import Broker
from tapeway.engine.cassettes.context import utc_day
from tapeway.engine.hooks import NO_HOOKS, Hooks
from tapeway.engine.journal import RequestIds, RequestJournal
from tapeway.engine.recording.selection import Policy
from tapeway.formats.native import document
from tapeway.loop_guard import LoopGuard
from tapeway.ports import CassetteStore
from tapeway.providers.paths import owner
from tapeway.server.front import SEND_S, Front, FrontServer
from tapeway.server.listeners import Listener, mount
from tapeway.server.proxy import Proxy, ProxyOptions
from tapeway.stores.memory import MemoryStore
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.client import Limits, UpstreamClient
from tapeway.upstream.outer_proxy import DIRECT, ProxyChoice
from tests.support.raw_client import Answer, RawClient

HitsOn = Literal["front", "ordinary", "nowhere"]
"""Where hits are looked for first: by the front, by the proxy, or not before the broker decides."""

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class RunningProxy:
    """A proxy that serves, and what it is made of."""

    port: int
    broker: Broker
    client: UpstreamClient
    store: CassetteStore
    journal: RequestJournal
    proxy: Proxy
    server: FrontServer
    trust: SSLContext | None = None
    """How clients trust the listener, where it speaks TLS."""

    def connections(self) -> list[Front]:
        """The connections that are open."""
        return [*self.server.fronts]

    @property
    def url(self) -> str:
        return f"{'https' if self.trust else 'http'}://127.0.0.1:{self.port}"

    @property
    def host(self) -> bytes:
        return f"127.0.0.1:{self.port}".encode()

    def connect(self) -> RawClient:
        """A client's connection, to be used as a context manager."""
        return RawClient(self.url, self.trust)

    def request(self, line: bytes = b"GET /", *fields: bytes, body: bytes = b"") -> bytes:
        """A request with nothing in it but what is given, its Host and what frames a body."""
        lines = [line + b" HTTP/1.1", b"Host: " + self.host, *fields]
        if body:
            lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join([*lines, b"", body])

    async def ask(self, line: bytes = b"GET /", *fields: bytes, body: bytes = b"") -> Answer:
        """One request on a connection of its own."""
        return await self.send(self.request(line, *fields, body=body))

    async def send(self, *segments: bytes) -> Answer:
        """The first answer to these very bytes on a connection of its own."""
        async with self.connect() as client:
            return await client.ask(*segments)

    async def recorded(self) -> list[Interaction]:
        """The recordings in the store."""
        if (stored := await self.store.load("default", writable=False)) is None:
            return []
        return [
            interaction
            for interaction in stored.interactions
            if isinstance(interaction, Interaction)
        ]


@asynccontextmanager
async def running_proxy(
    upstream: str | None = None,
    *,
    mode: Mode = "record",
    routes: dict[str, str] | None = None,
    store: CassetteStore | None = None,
    policy: Policy | None = None,
    rules: Rules = NO_RULES,
    allowed: Allowed = NOTHING_ALLOWED,
    limits: Limits | None = None,
    options: ProxyOptions | None = None,
    tls: SSLContext | bool = True,
    guard: AddressGuard | None = None,
    proxies: ProxyChoice = DIRECT,
    certificates: Mapping[str, SSLContext] | None = None,
    signing: Mapping[str, Signing] | None = None,
    listener_tls: tuple[SSLContext, SSLContext] | None = None,
    presets: bool = False,
    send_s: float = SEND_S,
    loops: LoopGuard | None = None,
    hits: HitsOn = "front",
    today: Callable[[], str] = utc_day,
    wrap: Callable[[UpstreamClient], UpstreamClient] = lambda client: client,
    hooks: Hooks = NO_HOOKS,
) -> AsyncIterator[RunningProxy]:
    """A proxy in front of one upstream, or of routes; `{own}` in a URL is the proxy's own port.

    `listener_tls` has the two sides of its TLS, the server's first.
    """
    store, journal = store or MemoryStore(), RequestJournal(100)
    guard = guard or AddressGuard(frozenset(), ())
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    guard.own = frozenset({("127.0.0.1", port)})
    own = {"own": port}
    table = RouteTable(
        {name: Route(name, url.format_map(own)) for name, url in (routes or {}).items()},
        Route(DEFAULT_ROUTE, upstream.format_map(own)) if upstream else None,
    )
    limits = limits or Limits(connect_s=60, idle_s=60)
    client = UpstreamClient(
        *(guard, limits, loops or LoopGuard()),
        tls=tls,
        clock=time.monotonic,
        proxies=proxies,
        certificates=certificates,
        signing=signing,
    )
    async with (
        client,
        Broker(
            store,
            wrap(client),
            mode=mode,
            cassette="default",
            routes=table,
            policy=policy or Policy(),
            rules=rules,
            allowed=allowed,
            new_head=lambda: CassetteHead("2026-01-01T00:00:00+00:00", "run"),
            presets=presets,
            journal=journal,
            today=today,
            hooks=hooks,
        ) as broker,
    ):
        proxy = Proxy(
            broker,
            journal,
            owner,
            options or ProxyOptions(max_body=8 * MIB, body_idle_s=10),
            client.loops,
            clock=time.monotonic,
            now=time.monotonic,
            ids=RequestIds("tw"),
            dial=client.dial,
        )
        if hits == "nowhere":
            proxy.hits = None
        first = proxy.hits if hits == "front" else None
        server = FrontServer(proxy, send_s, first, proxy.refused)
        async with AsyncExitStack() as stack:
            theirs, ours = listener_tls or (None, None)
            await mount(stack, server, Listener(bound, "127.0.0.1", port, theirs))
            yield RunningProxy(port, broker, client, store, journal, proxy, server, ours)


async def written_and_read(store: CassetteStore) -> MemoryStore:
    """A store with the same cassettes after each has been through its file's text."""
    again = MemoryStore()
    for name in await store.names():
        stored = await store.load(name, writable=False)
        assert stored is not None
        await again.save(name, document.load(document.save(stored)))
    return again
