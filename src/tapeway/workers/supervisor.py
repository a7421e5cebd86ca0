"""`tapeway serve --workers N`: the process that starts the workers and answers for them.

It holds the port and the admin API, and serves no request itself. Its own instance of the store is
for what the API reads and steers.
"""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

import uvloop

from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.errors import ConfigError, TapewayError
from tapeway.ports import SharedStore
from tapeway.server.drain import stop_on_signals
from tapeway.server.lifecycle import LAST_WORDS_S, admin_listener_of, announce, within
from tapeway.server.listeners import Listener, MountedListener, listen_together, mount
from tapeway.server.wiring import (
    make_admin,
    make_broker,
    make_client,
    make_store,
    started,
    starting,
)
from tapeway.settings.options import Settings
from tapeway.workers.messages import Assignment
from tapeway.workers.pool import WorkerPool

log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve by several processes until a signal; returns after a clean stop.

    Raises ConfigError for a store they cannot share, and what a single process raises.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    store = _shared(settings)
    stopping = stop_on_signals()
    async with AsyncExitStack() as stack:
        starting()
        together = listen_together(
            "--listen", settings.listen.host, settings.listen.port, settings.workers
        )
        for each in together:
            stack.callback(each.socket.close)
        admin = admin_listener_of(settings, stack)
        own = [each.place for each in (together[0], admin) if each is not None]
        client = await stack.enter_async_context(make_client(settings, own))
        journal = RequestJournal(settings.journal_size)
        broker = make_broker(settings, store, client, journal)
        await stack.enter_async_context(broker)
        # A cassette that cannot be read stops the start, not the first request.
        await broker.prepare()
        assignment = Assignment(settings, admin.url if admin else None, tuple(own))
        crew = WorkerPool(assignment, together, broker, journal, time.monotonic)
        stopping.at_once = crew.kill
        stack.callback(crew.kill)
        office = _Office(settings, broker, journal, crew, together, admin)
        if (fault := await _attended(office, stopping)) is not None:
            raise fault


@dataclass(frozen=True, slots=True)
class _Office:
    """What runs in this process."""

    settings: Settings
    broker: Broker
    journal: RequestJournal
    crew: WorkerPool
    together: list[Listener]
    admin: Listener | None


async def _attended(office: _Office, stopping: asyncio.Event) -> TapewayError | None:
    """Serve until told to stop, or until there is no use in going on, and why that is."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        side = None
        fault = await office.crew.start(tasks)
        if fault is None:
            side = await _admin(office, stack)
            started()
            announce(
                office.settings,
                office.broker,
                office.together[0].url,
                side.listener.url if side is not None else None,
            )
            fault = await _stopped(office.crew, stopping)
            log.info("stopping: waiting for calls in flight in %d workers", office.settings.workers)
        return await _drained(office, side) or fault


async def _admin(office: _Office, stack: AsyncExitStack) -> MountedListener | None:
    if office.admin is None:
        return None
    runner = make_admin(office.settings, office.broker, office.journal, office.admin, office.crew)
    return await mount(stack, runner, office.admin)


async def _stopped(crew: WorkerPool, stopping: asyncio.Event) -> TapewayError | None:
    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(each.wait()) for each in (stopping, crew.given_up)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()
    if crew.given_up.is_set():
        return TapewayError("workers ended again and again, so tapeway does too: its log says how")
    return None


async def _drained(office: _Office, side: MountedListener | None) -> TapewayError | None:
    """Let what is under way end, the admin API last."""
    office.broker.drain()
    for each in office.together:
        # Theirs are closed by the workers: from then on nobody is let in.
        each.socket.close()
    clean = await office.crew.drain()
    office.journal.close()
    if side is not None:
        await side.close()
        await within(LAST_WORDS_S, side.ended())
    return None if clean else TapewayError("a worker did not end in time and was killed")


def _shared(settings: Settings) -> SharedStore:
    store = make_store(settings)
    if (shared := store.capabilities.shared) is None:
        raise ConfigError(
            f"--workers {settings.workers}: the store {store.url} cannot be used by several "
            "processes at once: give --store sqlite:FILE or postgresql://…, or --workers 1"
        )
    return shared
