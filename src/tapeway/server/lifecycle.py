"""A serving process: started, announced, drained."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import uvloop
from aiohttp import web

from tapeway.core.json_text import Json, dump
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.server.drain import stop_on_signals
from tapeway.server.listeners import Listener, MountedListener, listen, mount
from tapeway.server.protocol import ProxyServer
from tapeway.server.proxy import Proxy
from tapeway.server.wiring import (
    GRACE_S,
    make_admin,
    make_broker,
    make_client,
    make_proxy,
    make_store,
    started,
    starting,
)
from tapeway.settings.options import Settings

log = logging.getLogger(__name__)

LAST_WORDS_S = 0.5
"""What is left after the drain to tell waiting clients that their call was broken off."""


def serve(settings: Settings) -> None:
    """Serve until a signal; returns after a clean stop.

    Raises ConfigError for what cannot be used, another TapewayError for what could not be started
    or written; what was recorded is kept.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves apps."""

    settings: Settings
    broker: Broker
    proxy: Proxy
    side: MountedListener


@dataclass(frozen=True, slots=True)
class Service:
    """What runs while serving."""

    serving: Serving
    journal: RequestJournal
    admin_side: MountedListener | None

    @property
    def broker(self) -> Broker:
        return self.serving.broker

    @property
    def url(self) -> str:
        """Where apps connect."""
        return self.serving.side.listener.url


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
    stopping = stop_on_signals()
    async with serving(settings) as service:
        admin = service.admin_side.listener.url if service.admin_side else None
        announce(settings, service.broker, service.url, admin)
        await stopping.wait()
        log.info("stopping: waiting for %d calls in flight", service.broker.in_flight)


async def _start(settings: Settings, stack: AsyncExitStack) -> Service:
    starting()
    proxy_listener = listen("--listen", settings.listen.host, settings.listen.port)
    stack.callback(proxy_listener.socket.close)
    admin_listener = admin_listener_of(settings, stack)
    own = [each.place for each in (proxy_listener, admin_listener) if each]
    client = await stack.enter_async_context(make_client(settings, own))
    journal = RequestJournal(settings.journal_size)
    broker = make_broker(settings, make_store(settings), client, journal)
    await stack.enter_async_context(broker)
    # A cassette that cannot be read stops the start, not the first request.
    await broker.prepare()
    proxy = make_proxy(settings, broker, journal, admin_listener.url if admin_listener else None)
    server = web.ServerRunner(ProxyServer(proxy), shutdown_timeout=GRACE_S)
    side = await mount(stack, server, proxy_listener)
    admin_side = None
    if admin_listener is not None:
        admin = make_admin(settings, broker, journal, admin_listener)
        admin_side = await mount(stack, admin, admin_listener)
    started()
    return Service(Serving(settings, broker, proxy, side), journal, admin_side)


def admin_listener_of(settings: Settings, stack: AsyncExitStack) -> Listener | None:
    """The socket of the admin API, bound until the stack ends. Raises TapewayError."""
    if (admin := settings.admin_listen) is None:
        return None
    listener = listen("--admin-listen", admin.host, admin.port)
    stack.callback(listener.socket.close)
    return listener


async def drained(serving: Serving) -> None:
    """Let what is under way end, up to the drain timeout, then break it off with an answer."""
    serving.proxy.draining = True
    await serving.side.close()
    if not await within(serving.settings.drain_timeout, _answered(serving)):
        log.warning("breaking off what did not end within --drain-timeout")
        serving.broker.cancel()
        serving.proxy.break_off()
        await within(LAST_WORDS_S, _answered(serving))


async def _drain(service: Service) -> None:
    end = time.monotonic() + service.serving.settings.drain_timeout
    service.broker.drain()
    await drained(service.serving)
    service.journal.close()
    if service.admin_side is not None:
        await service.admin_side.close()
        await within(max(LAST_WORDS_S, end - time.monotonic()), service.admin_side.ended())


async def _answered(serving: Serving) -> None:
    await serving.proxy.empty()
    await serving.side.ended()


async def within(seconds: float, work: Coroutine[None, None, None]) -> bool:
    """Whether it was done by then; if not, it is broken off."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
            return True
    return False


def announce(settings: Settings, broker: Broker, proxy: str, admin: str | None) -> None:
    """Say where it serves, to people on stderr and to programs on stdout."""
    store = broker.store
    log.info("cassettes in %s, durable once on %s", store.url, store.durability)
    if settings.insecure_upstream:
        log.warning("--insecure-upstream: certificates of upstreams are not checked")
    if (broker.mode, broker.active) != (settings.mode, settings.cassette):
        log.info(
            "other instances use this store: mode %s and cassette '%s' are in force, as they are "
            "for them; steer by the admin API",
            broker.mode,
            broker.active,
        )
    if store.durability == "process" and broker.mode in ("record", "auto"):
        log.warning("recordings are kept in memory only and end with this process")
    ready: dict[str, Json] = {
        "event": "ready",
        "proxy": proxy,
        "admin": admin,
        "mode": broker.mode,
        "cassette": broker.active,
        "pid": os.getpid(),
    }
    try:
        sys.stdout.write(dump(ready).decode() + "\n")
        sys.stdout.flush()
    except OSError as exc:
        log.warning("the ready line could not be written to standard output: %s", exc.strerror)
