"""A process that serves the port beside others: started, told what to do and stopped by one above."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from socket import socket

import uvloop
from aiohttp import web

from tapeway.admin.processes import store_error
from tapeway.core.redaction.credentials import environment_credentials
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.errors import TapewayError, describe
from tapeway.logs import configure, label
from tapeway.server.drain import STOPPING
from tapeway.server.lifecycle import Serving, drained
from tapeway.server.listeners import adopted, mount
from tapeway.server.protocol import ProxyServer
from tapeway.server.wiring import (
    GRACE_S,
    make_broker,
    make_client,
    make_proxy,
    make_store,
    started,
    starting,
)
from tapeway.settings.options import Settings, known_secrets
from tapeway.workers.messages import Assignment, Value, told, unpacked
from tapeway.workers.pipe import Channel, PipeWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handed:
    """What a worker is started with: its number, and descriptors it inherited."""

    number: int
    channel: int
    news: int
    listener: int


def main() -> None:
    """Serve until the process above says so or is gone, or until a signal."""
    handed = Handed(*map(int, sys.argv[1:5]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(_work(handed))
    sys.exit(code)


async def _work(handed: Handed) -> int:
    channel = await Channel.over(socket(fileno=handed.channel))
    stopping = asyncio.Event()
    for each in STOPPING:
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)
    try:
        data = await channel.receive()
    except EOFError:
        return 1
    if not isinstance(data, bytes):
        return 1
    assignment = unpacked(data)
    _log(assignment.settings, handed.number)
    try:
        async with _serving(assignment, handed, channel) as worker:
            channel.send(("ready",))
            async with asyncio.TaskGroup() as tasks:
                orders = tasks.create_task(_take_orders(worker, channel, tasks, stopping))
                await stopping.wait()
                log.info("stopping: waiting for %d calls in flight", worker.broker.in_flight)
                await drained(worker.serving)
                worker.outlet.flush()
                orders.cancel()
    except TapewayError as exc:
        channel.send(("failed", *told(exc)))
        await channel.sent()
        return 1
    except Exception as exc:
        log.error("this worker failed: %s", describe(exc))
        return 1
    return 0


def _log(settings: Settings, number: int) -> None:
    credentials = [value for _, value in environment_credentials(os.environ)]
    configure(settings.log_format, settings.log_level, [*known_secrets(settings), *credentials])
    label("worker", number)


@dataclass(frozen=True, slots=True)
class _Worker:
    serving: Serving
    outlet: PipeWriter

    @property
    def broker(self) -> Broker:
        return self.serving.broker


@asynccontextmanager
async def _serving(
    assignment: Assignment, handed: Handed, channel: Channel
) -> AsyncIterator[_Worker]:
    settings = assignment.settings
    async with AsyncExitStack() as stack:
        starting()
        client = await stack.enter_async_context(make_client(settings, assignment.own))
        outlet = PipeWriter(
            handed.news,
            clock=time.monotonic,
            connections=lambda: client.connections,
            hint=lambda: channel.send(("hint",)),
        )
        broker = make_broker(settings, make_store(settings), client, RequestJournal(0))
        await stack.enter_async_context(broker)
        await broker.prepare()
        proxy = make_proxy(settings, broker, outlet, assignment.admin)
        runner = web.ServerRunner(ProxyServer(proxy), shutdown_timeout=GRACE_S)
        side = await mount(stack, runner, adopted(handed.listener))
        started()
        yield _Worker(Serving(settings, broker, proxy, side), outlet)


async def _take_orders(
    worker: _Worker, channel: Channel, tasks: asyncio.TaskGroup, stopping: asyncio.Event
) -> None:
    """Do what is said until nobody is there to say anything, which is an order to stop too."""

    def stop() -> None:
        # One that is told to end alone starts calls for whoever is connected to it: others go on.
        worker.broker.drain()
        stopping.set()

    try:
        while True:
            match await channel.receive():
                case ("look", int(asked)):
                    channel.send(("answer", asked, _standing(worker)))
                case ("quiet", int(asked), str(cassette)):
                    tasks.create_task(_quiet(worker, channel, asked, cassette))
                case ("drain",):
                    stop()
    except EOFError:
        log.warning("the process above this worker is gone, so it stops")
        stop()


def _standing(worker: _Worker) -> Value:
    worker.outlet.flush()
    trouble = store_error(worker.broker.store)
    return worker.broker.in_flight, None if trouble is None else told(trouble)


async def _quiet(worker: _Worker, channel: Channel, asked: int, cassette: str) -> None:
    await worker.broker.quiet(cassette)
    channel.send(("answer", asked, None))
