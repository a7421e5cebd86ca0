"""From settings to a serving process and back: the one file that names concrete classes."""

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import secrets
import signal
import ssl
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from urllib.parse import urlsplit

import uvloop
from aiohttp import web

from tapeway.admin.application import make_application
from tapeway.admin.listener import AdminRunner
from tapeway.broker import Broker
from tapeway.core.json_text import Json, dump
from tapeway.core.model import CassetteHead
from tapeway.errors import ConfigError
from tapeway.journal import Journal
from tapeway.live import Policy
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.paths import owner
from tapeway.server.connection import ProxyServer
from tapeway.server.listeners import BACKLOG, Listener, listen
from tapeway.server.manners import Manners
from tapeway.server.proxy import Proxy
from tapeway.settings import Settings, process_secrets, resolve_routes
from tapeway.stores.opening import open_store
from tapeway.upstream.client import Limits, UpstreamClient
from tapeway.upstream.guard import AddressGuard

log = logging.getLogger(__name__)

VERSION = version("tapeway")

_LAST_WORDS_S = 0.5
"""What is left after the drain to tell waiting clients that their call was broken off."""

_GRACE_S = 0.25
"""Twice this is what a connection that even then is not done may hold up the stop."""

_TURN_S = 0.001
"""So long the event loop waits at most for a thread that explains a miss; Python's default is 5 ms."""


def serve(settings: Settings) -> None:
    """Serve until a signal; returns after a clean stop.

    Raises ConfigError for what cannot be used, another TapewayError for what could not be started
    or written; what was recorded is kept.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


@dataclass(frozen=True, slots=True)
class _Side:
    """A listener and what serves it."""

    listener: Listener
    runner: web.ServerRunner | web.AppRunner


@dataclass(frozen=True, slots=True)
class Service:
    """What runs while serving."""

    settings: Settings
    broker: Broker
    journal: Journal
    proxy: Proxy
    proxy_side: _Side
    admin_side: _Side | None

    @property
    def url(self) -> str:
        """Where apps connect."""
        return self.proxy_side.listener.url


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Service]:
    """Serve inside the block; what is under way at its end is let end. Raises what `serve` does."""
    async with AsyncExitStack() as stack:
        service = await _start(settings, stack)
        try:
            yield service
        finally:
            await _drain(service)


async def _serve(settings: Settings) -> None:
    stopping = _stop_on_signals()
    async with serving(settings) as service:
        _announce(service)
        await stopping.wait()
        log.info("stopping: waiting for %d calls in flight", service.broker.in_flight)


async def _start(settings: Settings, stack: AsyncExitStack) -> Service:
    # What a cassette holds stays, and what a request makes is nearly all freed by counting: the
    # collector need not look after every few of them.
    gc.set_threshold(20_000, 20, 20)
    proxy_listener = listen("--listen", settings.listen.host, settings.listen.port)
    stack.callback(proxy_listener.socket.close)
    admin_listener = None
    if (admin := settings.admin_listen) is not None:
        admin_listener = listen("--admin-listen", admin.host, admin.port)
        stack.callback(admin_listener.socket.close)
    guard = _guard(settings, [each for each in (proxy_listener, admin_listener) if each])
    client = await stack.enter_async_context(
        UpstreamClient(
            guard,
            Limits(settings.connect_timeout, settings.upstream_timeout),
            tls=_tls(settings),
            clock=time.monotonic,
        )
    )
    broker = await stack.enter_async_context(_broker(settings, client))
    # A cassette that cannot be read stops the start, not the first request.
    await broker.load(None)
    journal = Journal(settings.journal_size)
    proxy = _proxy(settings, broker, journal, admin_listener)
    server = web.ServerRunner(ProxyServer(proxy), shutdown_timeout=_GRACE_S)
    proxy_side = await _mount(stack, server, proxy_listener)
    admin_side = None
    if admin_listener is not None:
        application = make_application(
            broker,
            journal,
            token=settings.admin_token.get_secret_value() if settings.admin_token else None,
            listener=(admin_listener.host, admin_listener.port),
            version=VERSION,
        )
        runner = AdminRunner(application, shutdown_timeout=_GRACE_S)
        admin_side = await _mount(stack, runner, admin_listener)
    # What is loaded now stays; the collector need not walk it again and again.
    gc.freeze()
    sys.setswitchinterval(_TURN_S)
    return Service(settings, broker, journal, proxy, proxy_side, admin_side)


def _broker(settings: Settings, client: UpstreamClient) -> Broker:
    return Broker(
        open_store(settings.store),
        client,
        mode=settings.mode,
        cassette=settings.cassette,
        routes=resolve_routes(settings),
        policy=Policy(
            repeats=settings.repeats,
            record_statuses=settings.record_statuses,
            max_body=settings.max_body,
            record_failures=settings.record_failures,
        ),
        new_head=_new_head,
        known=process_secrets(settings, os.environ),
        rules=settings.rules,
    )


def _proxy(
    settings: Settings, broker: Broker, journal: Journal, admin_listener: Listener | None
) -> Proxy:
    manners = Manners(
        max_body=settings.max_body,
        body_idle_s=settings.body_timeout,
        miss_status=settings.miss_status,
        rewrite_location=settings.rewrite_location,
        admin=admin_listener.url if admin_listener else None,
        delivery=settings.delivery,
        pace=settings.pace,
    )
    return Proxy(
        broker, journal, owner, manners, clock=time.monotonic, now=_now, new_id=_id_source()
    )


async def _mount(
    stack: AsyncExitStack, runner: web.ServerRunner | web.AppRunner, listener: Listener
) -> _Side:
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.SockSite(runner, listener.socket, backlog=BACKLOG).start()
    return _Side(listener, runner)


async def _drain(service: Service) -> None:
    """Let what is under way end, up to the drain timeout, then break it off with an answer."""
    end = time.monotonic() + service.settings.drain_timeout
    service.proxy.draining = True
    service.broker.drain()
    await _close(service.proxy_side)
    if not await _within(service.settings.drain_timeout, _answered(service)):
        log.warning("breaking off what did not end within --drain-timeout")
        service.broker.cancel()
        service.proxy.break_off()
        await _within(_LAST_WORDS_S, _answered(service))
    service.journal.close()
    if service.admin_side is not None:
        await _close(service.admin_side)
        await _within(max(_LAST_WORDS_S, end - time.monotonic()), _ended(service.admin_side))


async def _close(side: _Side) -> None:
    for site in side.runner.sites:
        await site.stop()


async def _answered(service: Service) -> None:
    await service.proxy.empty()
    await _ended(service.proxy_side)


async def _ended(side: _Side) -> None:
    """End idle connections now, and those that still write an answer once it is out."""
    if (server := side.runner.server) is not None:
        server.pre_shutdown()
        await server.shutdown(None)


async def _within(seconds: float, work: Coroutine[None, None, None]) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
            return True
    return False


def _announce(service: Service) -> None:
    settings = service.settings
    store = service.broker.store
    log.info("cassettes in %s, durable once on %s", store.url, store.durability)
    if settings.insecure_upstream:
        log.warning("--insecure-upstream: certificates of upstreams are not checked")
    if store.durability == "process" and settings.mode in ("record", "auto"):
        log.warning("recordings are kept in memory only and end with this process")
    ready: dict[str, Json] = {
        "event": "ready",
        "proxy": service.url,
        "admin": service.admin_side.listener.url if service.admin_side else None,
        "mode": settings.mode,
        "cassette": settings.cassette,
        "pid": os.getpid(),
    }
    try:
        sys.stdout.write(dump(ready).decode() + "\n")
        sys.stdout.flush()
    except OSError as exc:
        log.warning("the ready line could not be written to standard output: %s", exc.strerror)


def _stop_on_signals() -> asyncio.Event:
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            # A second signal means now: what is acknowledged is on disk already.
            os._exit(1)
        stopping.set()

    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # One that is started by nohup is to outlive its terminal.
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:
            loop.add_signal_handler(each, stop)
    return stopping


def _guard(settings: Settings, listeners: list[Listener]) -> AddressGuard:
    hosts = {urlsplit(p.url).hostname for p in PROVIDERS.values() if p.url}
    guard = AddressGuard(
        frozenset(host for host in hosts if host and "." in host), settings.allow_address
    )
    guard.own = frozenset((each.host, each.port) for each in listeners)
    return guard


def _tls(settings: Settings) -> ssl.SSLContext | bool:
    if settings.insecure_upstream:
        return False
    if settings.upstream_ca is None:
        return True
    try:
        context = ssl.create_default_context()
        context.load_verify_locations(settings.upstream_ca)
    except OSError as exc:
        raise ConfigError(
            f"--upstream-ca {settings.upstream_ca} cannot be read as PEM certificates"
        ) from exc
    return context


def _new_head() -> CassetteHead:
    return CassetteHead(
        created_at=datetime.now(UTC).isoformat(),
        run_id=str(uuid.uuid4()),
        meta={"tapeway_version": VERSION},
    )


def _id_source() -> Callable[[], str]:
    prefix, numbers = secrets.token_hex(4), itertools.count(1)
    return lambda: f"tw-{prefix}-{next(numbers)}"


def _now() -> float:
    return datetime.now(UTC).timestamp()
