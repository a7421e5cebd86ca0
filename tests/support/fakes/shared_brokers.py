"""Instances of one shared store, each a broker of its own, and the service behind them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tapeway.core.cassette.plan import Incoming
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import Mode, Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.engine.broker import Broker
from tapeway.engine.recording.selection import Policy
from tests.support.fakes.broker import ROUTES, ServedAnswer, serve
from tests.support.fakes.live_service import FakeResponder
from tests.support.fakes.store_instances import Common, InstanceStore

JSON = ((b"Content-Type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class Instance:
    """One process: its broker, and its view of the store."""

    broker: Broker
    store: InstanceStore

    async def get(self, path: str = "/v1/x") -> ServedAnswer:
        return await self.serve(Request("openai", "GET", path, base="https://up"))

    async def post(self, body: bytes, path: str = "/v1/chat") -> ServedAnswer:
        return await self.serve(Request("openai", "POST", path, JSON, body, "https://up"))

    async def serve(self, request: Request) -> ServedAnswer:
        """Serve one request as the proxy does."""
        broker = self.broker
        await broker.confirm()
        mode = broker.mode_of(broker.active)
        return await serve(broker, broker.active, Incoming(request, mode=mode))


@dataclass(frozen=True, slots=True)
class SharedBrokers:
    """Some instances, the store they share, and the service behind them."""

    instances: list[Instance]
    common: Common
    responder: FakeResponder

    def stored(self, name: str = "default") -> list[bytes]:
        held = self.common.held.get(name, [])
        return [
            interaction.response.body
            for interaction in held
            if isinstance(interaction, Interaction)
        ]


@asynccontextmanager
async def shared_brokers(
    mode: Mode = "auto",
    count: int = 2,
    *,
    repeats: Repeats | None = None,
    rules: Rules = NO_RULES,
    common: Common | None = None,
) -> AsyncIterator[SharedBrokers]:
    common, responder = common or Common(), FakeResponder()
    async with AsyncExitStack() as stack:
        instances: list[Instance] = []
        for number in range(count):
            store = InstanceStore(common)
            broker = Broker(
                store,
                responder,
                mode=mode,
                cassette="default",
                routes=ROUTES,
                policy=Policy(repeats=repeats),
                new_head=partial(CassetteHead, "t", f"run-{number}"),
                rules=rules,
            )
            await stack.enter_async_context(broker)
            instances.append(Instance(broker, store))
        yield SharedBrokers(instances, common, responder)


async def together(*works: "asyncio.Task[ServedAnswer]") -> list[ServedAnswer]:
    async with asyncio.timeout(60):
        return list(await asyncio.gather(*works))


def start(work: "Callable[[], object]") -> "asyncio.Task[ServedAnswer]":
    return asyncio.get_running_loop().create_task(work())  # type: ignore[arg-type]  # a coroutine
