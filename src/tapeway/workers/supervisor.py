"""`tapeway serve --workers N`: the process that starts workers and replaces ended workers.

The supervisor holds the port and the admin API, and serves no client request. The supervisor also
opens the store, so that the API can read and control cassettes.
"""

import asyncio
import logging
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

import uvloop

from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.errors import ConfigError, TapewayError
from tapeway.ports import CassetteStore
from tapeway.server.drain import stop_on_signals
from tapeway.server.lifecycle import (
    ABORT_S,
    announce,
    completed_within,
    listen_for_admin,
    prepare_cassette,
    proxy_tls,
)
from tapeway.server.listeners import LateListener, Listener, listen_shared
from tapeway.server.wiring import (
    make_admin,
    make_broker,
    make_client,
    make_store,
    tune_for_serving,
    tune_for_start,
)
from tapeway.settings.options import Settings
from tapeway.workers.messages import WorkerConfig
from tapeway.workers.pool import WorkerPool

log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve with several processes until a signal; returns after a clean stop.

    Raises ConfigError for a store that processes cannot share, and the errors of a single process.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


@dataclass(frozen=True, slots=True)
class _Supervisor:
    """What runs in this process."""

    settings: Settings
    broker: Broker
    journal: RequestJournal
    pool: WorkerPool
    listeners: list[Listener]
    admin_listener: Listener | None


async def _serve(settings: Settings) -> None:
    store = _usable_store(settings)
    stopping = stop_on_signals()
    async with AsyncExitStack() as stack:
        tune_for_start()
        listen = settings.listen
        tls = proxy_tls(settings)
        shared = listen_shared("--listen", listen.host, listen.port, settings.workers)
        listeners = [listener.over_tls(tls) for listener in shared]
        for listener in listeners:
            stack.callback(listener.socket.close)
        admin = listen_for_admin(settings, stack)
        own = [listener.address for listener in (listeners[0], admin) if listener is not None]
        client = await stack.enter_async_context(make_client(settings, own))
        journal = RequestJournal(settings.journal_size)
        broker = make_broker(settings, store, client, journal)
        await stack.enter_async_context(broker)
        await prepare_cassette(settings, broker)
        config = WorkerConfig(
            settings, admin.url if admin else None, tuple(own), secrets.token_hex(8)
        )
        pool = WorkerPool(config, listeners, broker, journal, time.monotonic)
        stopping.before_exit = pool.kill
        stack.callback(pool.kill)
        supervisor = _Supervisor(settings, broker, journal, pool, listeners, admin)
        if (error := await _supervise(supervisor, stopping)) is not None:
            raise error


async def _supervise(supervisor: _Supervisor, stopping: asyncio.Event) -> TapewayError | None:
    """Run until told to stop or until workers fail too often; the error to end with, if any."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        admin = None
        error = await supervisor.pool.start(tasks)
        if error is None:
            admin = _admin(supervisor, stack)
            tune_for_serving()
            announce(
                supervisor.settings,
                supervisor.broker,
                supervisor.listeners[0].url,
                admin.listener.url if admin is not None else None,
            )
            error = await _stopped(supervisor.pool, stopping)
            workers = supervisor.settings.workers
            log.info("stopping: waiting for calls in flight in %d workers", workers)
        return await _drain(supervisor, admin) or error


def _admin(supervisor: _Supervisor, stack: AsyncExitStack) -> LateListener | None:
    if (listener := supervisor.admin_listener) is None:
        return None
    make = make_admin(
        *(supervisor.settings, supervisor.broker, supervisor.journal, listener, supervisor.pool),
        proxy=supervisor.listeners[0].url_from_here,
    )
    return LateListener(stack, make, listener)


async def _stopped(pool: WorkerPool, stopping: asyncio.Event) -> TapewayError | None:
    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(event.wait()) for event in (stopping, pool.given_up)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    if pool.given_up.is_set():
        return TapewayError("workers ended again and again, so tapeway stops: its log says why")
    return None


async def _drain(supervisor: _Supervisor, admin: LateListener | None) -> TapewayError | None:
    """Let calls in flight end, and stop the admin API last."""
    supervisor.broker.drain()
    for listener in supervisor.listeners:
        # Once the workers close theirs too, nobody can connect any more.
        listener.socket.close()
    clean = await supervisor.pool.drain()
    supervisor.journal.close()
    if admin is not None:
        await admin.close()
        await completed_within(ABORT_S, admin.ended())
    return None if clean else TapewayError("a worker did not end in time and was killed")


def _usable_store(settings: Settings) -> CassetteStore:
    store = make_store(settings)
    if store.shared is None:
        raise ConfigError(
            f"--workers {settings.workers}: the store {store.url} cannot be used by several "
            "processes at once: give --store sqlite:FILE or postgresql://…, or --workers 1"
        )
    return store
