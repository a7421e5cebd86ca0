"""A worker: a process that shares a port with further workers, under a supervisor."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from socket import socket
from typing import TypeVar

import uvloop

from tapeway.admin.handlers.inspection.followers import RecordingFollowers
from tapeway.admin.models.inspection import RecordingsUnderWay
from tapeway.core.redaction.credentials import environment_credentials
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.errors import TapewayError, describe
from tapeway.logs import add_field, configure
from tapeway.loop_guard import LoopGuard
from tapeway.server.drain import STOP_SIGNALS
from tapeway.server.front import FrontServer
from tapeway.server.lifecycle import Serving, drain_proxy, proxy_tls
from tapeway.server.listeners import inherited_listener, mount
from tapeway.server.wiring import (
    make_broker,
    make_client,
    make_proxy,
    make_store,
    tune_for_serving,
    tune_for_start,
)
from tapeway.settings.options import Settings, known_secrets
from tapeway.upstream.client import UpstreamClient
from tapeway.workers.messages import Value, WorkerConfig, decode_config, encode_error
from tapeway.workers.pipe import Channel, PipeWriter

log = logging.getLogger(__name__)
E = TypeVar("E", bound=Exception)


@dataclass(frozen=True, slots=True)
class WorkerArguments:
    """A worker's number, and the file descriptors it inherits."""

    number: int
    channel: int
    pipe: int
    listener: int


def main() -> None:
    """Serve until the supervisor says so or is gone, or until a signal."""
    arguments = WorkerArguments(*map(int, sys.argv[1:5]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(_run(arguments))
    sys.exit(code)


async def _run(arguments: WorkerArguments) -> int:
    code = 0
    channel = await Channel.over(socket(fileno=arguments.channel))
    stopping = asyncio.Event()
    for stop_signal in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(stop_signal, stopping.set)
    try:
        data = await channel.receive()
    except EOFError:
        return 1
    if not isinstance(data, bytes):
        return 1
    config = decode_config(data)
    _configure_log(config.settings, arguments.number)
    try:
        async with asyncio.TaskGroup() as tasks, _made(config, arguments, channel) as worker:
            commands = tasks.create_task(_follow_commands(worker, channel, tasks, stopping))
            async with _serving(config, arguments, worker) as serving:
                channel.send(("ready",))
                await stopping.wait()
                log.info("stopping: waiting for %d calls in flight", worker.broker.in_flight)
                await drain_proxy(serving)
                worker.pipe.flush()
            commands.cancel()
    except* TapewayError as group:
        channel.send(("failed", *encode_error(_first(group))))
        await channel.sent()
        code = 1
    except* Exception as group:
        log.error("this worker failed: %s", describe(_first(group)))
        code = 1
    return code


def _first(group: BaseExceptionGroup[E]) -> E:
    first: E | BaseExceptionGroup[E] = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _configure_log(settings: Settings, number: int) -> None:
    credentials = [value for _, value in environment_credentials(os.environ)]
    configure(settings.log_format, settings.log_level, [*known_secrets(settings), *credentials])
    add_field("worker", number)


@dataclass(frozen=True, slots=True)
class _Worker:
    """The parts that a worker serves with."""

    broker: Broker
    client: UpstreamClient
    pipe: PipeWriter
    followers: RecordingFollowers


@asynccontextmanager
async def _made(
    config: WorkerConfig, arguments: WorkerArguments, channel: Channel
) -> AsyncIterator[_Worker]:
    settings = config.settings
    tune_for_start()
    async with make_client(settings, config.own_listeners, LoopGuard(config.identity)) as client:
        pipe = PipeWriter(
            arguments.pipe,
            clock=time.monotonic,
            connections=lambda: client.connections,
            hint=lambda: channel.send(("hint",)),
        )
        broker = make_broker(settings, make_store(settings), client, RequestJournal(0))
        yield _Worker(broker, client, pipe, RecordingFollowers(broker, f"{os.getpid()}."))


@asynccontextmanager
async def _serving(
    config: WorkerConfig, arguments: WorkerArguments, worker: _Worker
) -> AsyncIterator[Serving]:
    settings, broker = config.settings, worker.broker
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(broker)
        await broker.prepare()
        proxy = make_proxy(settings, broker, worker.pipe, config.admin_url, worker.client)
        server = FrontServer(proxy, settings.send_timeout, proxy.hits, proxy.refused)
        listener = inherited_listener(arguments.listener).over_tls(proxy_tls(settings))
        mounted = await mount(stack, server, listener)
        tune_for_serving()
        yield Serving(settings, broker, proxy, mounted)


async def _follow_commands(
    worker: _Worker, channel: Channel, tasks: asyncio.TaskGroup, stopping: asyncio.Event
) -> None:
    """Follow the supervisor's messages until the supervisor ends, and stop then."""

    def stop() -> None:
        # Not after a signal to this worker alone: then its clients may still start live calls.
        worker.broker.drain()
        stopping.set()

    try:
        while True:
            match await channel.receive():
                case ("status", int(question)):
                    channel.send(("answer", question, _status(worker)))
                case ("wait_for_recordings", int(question), str(cassette)):
                    tasks.create_task(_wait_for_recordings(worker, channel, question, cassette))
                case ("recordings", int(question)):
                    under_way = RecordingsUnderWay(recordings=worker.followers.under_way())
                    channel.send(("answer", question, under_way.model_dump_json().encode()))
                case ("recording_news", int(question), str(id), str(follower)):
                    tasks.create_task(_recording_news(worker, channel, question, id, follower))
                case ("leave_recording", str(follower)):
                    # The task of an earlier question may not have begun: leave after that task.
                    asyncio.get_running_loop().call_soon(worker.followers.leave, follower)
                case ("drain",):
                    stop()
    except EOFError:
        log.warning("the supervisor is gone: this worker stops")
        stop()


def _status(worker: _Worker) -> Value:
    worker.pipe.flush()
    error = worker.broker.store.trouble
    open_now = worker.broker.recorder.responder.open_connections
    return worker.broker.in_flight, None if error is None else encode_error(error), *open_now


async def _wait_for_recordings(
    worker: _Worker, channel: Channel, question: int, cassette: str
) -> None:
    await worker.broker.wait_for_calls(cassette)
    channel.send(("answer", question, None))


async def _recording_news(
    worker: _Worker, channel: Channel, question: int, id: str, follower: str
) -> None:
    news = await worker.followers.news(id, follower)
    channel.send(("answer", question, None if news is None else (news.event, news.is_last)))
