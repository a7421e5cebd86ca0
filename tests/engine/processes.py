"""Processes over one store, one after another: what each request of theirs gets."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from tapeway.core.cassette.plan import Incoming
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import Secret
from tapeway.engine.broker import Broker
from tapeway.engine.recording.selection import Policy
from tests.stores.contract.kinds import Place
from tests.support.fakes.broker import HEAD, ROUTES, serve
from tests.support.fakes.live_service import FakeAnswer, FakeResponder

Answering = Callable[[Request, int], FakeAnswer]
"""What the upstream answers to a request, which is the so-manieth that it got."""


class Served(NamedTuple):
    """What a request got."""

    outcome: str
    body: bytes


class Run:
    """A process over a store, and the upstream that it asks."""

    def __init__(self, broker: Broker, responder: FakeResponder) -> None:
        self.broker = broker
        self.responder = responder

    async def ask(self, *requests: Request) -> list[Served]:
        served = [await serve(self.broker, "default", Incoming(request)) for request in requests]
        return [Served(answer.outcome, answer.body) for answer in served]

    async def count(self) -> int:
        """How many recordings there are."""
        stored = await self.broker.source.read("default")
        return 0 if stored is None else len(stored.interactions)


@asynccontextmanager
async def process_over(
    place: Place,
    mode: Mode,
    answering: Answering,
    *,
    rules: Rules = NO_RULES,
    policy: Policy | None = None,
    known: Sequence[Secret] = (),
) -> AsyncIterator[Run]:
    """A new process; `known` are the secrets of its environment."""
    responder = FakeResponder(lambda number: answering(responder.asked[-1], number))
    broker = Broker(
        place.again(),
        responder,
        mode=mode,
        cassette="default",
        routes=ROUTES,
        policy=policy or Policy(),
        new_head=lambda: HEAD,
        rules=rules,
        known=known,
    )
    async with broker:
        yield Run(broker, responder)


def outcomes(served: Sequence[Served]) -> list[str]:
    return [answer.outcome for answer in served]


def bodies(served: Sequence[Served]) -> list[bytes]:
    return [answer.body for answer in served]
