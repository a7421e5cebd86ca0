"""`tapeway serve`: start, announce, drain, stop."""

import asyncio
import contextlib
import gc
import logging
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import uvloop
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy

from tapeway.core.json_text import Json, dump
from tapeway.core.model.control import MODE_POLICIES
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.errors import ConfigError
from tapeway.ports import CassetteStore
from tapeway.server.drain import stop_on_signals
from tapeway.server.front import FrontServer
from tapeway.server.listeners import (
    LateListener,
    Listener,
    MountedListener,
    certificate_context,
    listen,
    mount,
)
from tapeway.server.proxy import Proxy
from tapeway.server.wiring import (
    make_admin,
    make_broker,
    make_client,
    make_proxy,
    make_store,
    tune_for_serving,
    tune_for_start,
)
from tapeway.settings.options import Settings

log = logging.getLogger(__name__)

_CLOSE_S = 0.25
"""The least time for writing cassettes in their final form."""

_ABORT_S = 0.5
"""After the drain: the time left to tell waiting clients that their call was aborted."""
_DURABILITY = {
    "process": "recordings are kept in memory",
    "disk": "each recording is fsynced",
    "primary": "the server flushes each recording to disk",
    "server": "the server stores each recording, but does not flush it to disk",
    "remote": "the other tapeway keeps recordings in memory",
}
"""What `durability` means, for the log."""


def serve(settings: Settings) -> None:
    """Serve until a signal; returns after a clean stop.

    Raises ConfigError for unusable settings, and another TapewayError for what could not be started
    or written; recordings made so far are kept.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that runs in this process: the proxy on its listener, and the admin API."""

    settings: Settings
    broker: Broker
    proxy: Proxy
    mounted: MountedListener
    journal: RequestJournal
    admin: LateListener | None

    @property
    def url(self) -> str:
        """Where apps connect."""
        return self.mounted.listener.url


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Service]:
    """Serve inside the block, and drain at its end. Raises what `serve` does."""
    async with AsyncExitStack() as stack:
        service = await _start(settings, stack)
        try:
            yield service
        finally:
            await _drain(service)


async def _serve(settings: Settings) -> None:
    stopping = stop_on_signals()
    async with serving(settings) as service:
        admin = service.admin.listener.url if service.admin else None
        _announce(settings, service.broker, service.url, admin)
        await stopping.wait()
        log.info("stopping: waiting for %d calls in flight", service.broker.in_flight)
        # At its end Python would traverse all recordings once more.
        gc.freeze()


async def _start(settings: Settings, stack: AsyncExitStack) -> Service:
    tune_for_start()
    tls = _proxy_tls(settings)
    proxy_listener = listen("--listen", settings.listen.host, settings.listen.port).over_tls(tls)
    stack.callback(proxy_listener.socket.close)
    admin_listener = _listen_for_admin(settings, stack)
    own = [listener.address for listener in (proxy_listener, admin_listener) if listener]
    client = await stack.enter_async_context(make_client(settings, own))
    journal = RequestJournal(settings.journal_size)
    store = await _known_store(settings, stack)
    broker = make_broker(settings, store, client, journal)
    await stack.enter_async_context(broker)
    await _prepare_cassette(settings, broker)
    admin_url = admin_listener.url if admin_listener else None
    proxy = make_proxy(settings, broker, journal, admin_url, client, proxy_listener)
    server = FrontServer(proxy, settings.send_timeout, proxy.hits, proxy.refused)
    mounted = await mount(stack, server, proxy_listener)
    admin = None
    if admin_listener is not None:
        make = make_admin(
            settings, broker, journal, admin_listener, proxy=proxy_listener.url_from_here
        )
        admin = LateListener(stack, make, admin_listener)
    tune_for_serving()
    return Service(settings, broker, proxy, mounted, journal, admin)


async def _known_store(settings: Settings, stack: AsyncExitStack) -> CassetteStore:
    """The store. It is open already if only an open store tells whether processes can share it."""
    store = make_store(settings)
    if not _is_shared(store):
        return store
    stack.push_async_callback(store.close)
    await store.open()
    if not _is_shared(store):
        if MODE_POLICIES[settings.mode].records:
            raise ConfigError(
                f"--mode {settings.mode}: {store.url} can only be read, as a standby or by the rights of "
                "this role: give --mode replay, or a role that may write to the primary"
            )
        log.info("%s can only be read: takes are those of this process alone", store.url)
    return store


def _is_shared(store: CassetteStore) -> bool:
    return store.shared is not None


def _proxy_tls(settings: Settings) -> ssl.SSLContext | None:
    """The TLS context of the proxy listener, None without TLS. Raises ConfigError."""
    if settings.tls_cert is None:
        return None
    return certificate_context(settings.tls_cert, settings.tls_key)


async def _prepare_cassette(settings: Settings, broker: Broker) -> None:
    """Load the active cassette: an unreadable cassette stops the start.

    Warns if the cassette to be replayed does not exist. Raises StoreError.
    """
    await broker.prepare()
    # The default cassette is for requests without a name: often every request names one.
    named = "cassette" in settings.given
    if named and (warning := await broker.only_misses(broker.active)) is not None:
        log.warning(warning)


def _listen_for_admin(settings: Settings, stack: AsyncExitStack) -> Listener | None:
    """The listener of the admin API, open until the stack ends. Raises TapewayError."""
    if (admin := settings.admin_listen) is None:
        return None
    listener = listen("--admin-listen", admin.host, admin.port)
    if settings.admin_tls:
        listener = listener.over_tls(_proxy_tls(settings))
    stack.callback(listener.socket.close)
    return listener


async def _drain(service: Service) -> None:
    end = time.monotonic() + service.settings.drain_timeout
    service.broker.drain()
    await _drain_proxy(service)
    service.journal.close()
    if service.admin is not None:
        await service.admin.close()
        await _completed_within(max(_ABORT_S, end - time.monotonic()), service.admin.ended())
    service.broker.close_within(max(_CLOSE_S, end - time.monotonic()))


async def _drain_proxy(service: Service) -> None:
    """Let calls in flight end, up to the drain timeout, then abort them with an error response."""
    service.proxy.drain()
    service.mounted.close()
    if not await _completed_within(service.settings.drain_timeout, _idle(service)):
        log.warning("aborting calls that did not end within --drain-timeout")
        service.broker.cancel()
        service.proxy.break_off()
        await _completed_within(_ABORT_S, _idle(service))
    service.proxy.failures.end_rows()


async def _idle(service: Service) -> None:
    await service.proxy.wait_until_idle()
    await service.mounted.ended()


async def _completed_within(seconds: float, work: Coroutine[None, None, None]) -> bool:
    """Whether the work completed in time; if not, it is cancelled."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
            return True
    return False


def _announce(settings: Settings, broker: Broker, proxy: str, admin: str | None) -> None:
    """Log what is served, and write the ready line for programs to standard output."""
    store = broker.store
    log.info(
        "store: %s, %s", store.url, _DURABILITY.get(store.facts.durability, store.facts.durability)
    )
    if HttpRequestParser is HttpRequestParserPy:
        log.warning(
            "aiohttp runs without its compiled parser (AIOHTTP_NO_EXTENSIONS, or no wheel for this "
            "platform): each request takes several times as long to parse"
        )
    if settings.insecure_upstream:
        log.warning("--insecure-upstream: certificates of upstreams are not verified")
    if (broker.mode, broker.active) != (settings.mode, settings.cassette):
        log.info(
            "other instances use this store: mode %s and cassette '%s' are in force, as for them; "
            "change them through the admin API",
            broker.mode,
            broker.active,
        )
    if store.facts.durability == "process" and broker.mode in ("record", "auto"):
        log.warning("recordings are kept in memory only and are lost when this process ends")
    ready: dict[str, Json] = {
        "event": "ready",
        "proxy": proxy,
        "admin": admin,
        "mode": broker.mode,
        "cassette": broker.active,
        "pid": os.getpid(),
    }
    if sys.stderr.isatty():
        page = "" if admin is None else f", look at it at {settings.page_url or f'{admin}/'}"
        log.info("the proxy is at %s%s", proxy, page)
    try:
        sys.stdout.write(dump(ready).decode() + "\n")
        sys.stdout.flush()
    except OSError as exc:
        log.warning("the ready line could not be written to standard output: %s", exc.strerror)
