"""A broker between a fake store and a fake service, and what a client of it would do."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tapeway.core.cassette.plan import Incoming, Plan, Replay
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.control import Mode, Outcome
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.engine.broker import Broker
from tapeway.engine.journal import ClientTexts, ServedRequest, tokens_of
from tapeway.engine.journal import ServedAnswer as NotedAnswer
from tapeway.engine.recording.selection import Policy
from tapeway.engine.response_buffer import ResponseReader
from tests.support.fakes.failing_store import FakeStore
from tests.support.fakes.live_service import FakeResponder

ROUTES = RouteTable({"openai": Route("openai", "https://up"), "azure": Route("azure", None)})
HEAD = CassetteHead("2026-01-01T00:00:00+00:00", "run-1")


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """What a client got: outcome, body, and the recording it was."""

    outcome: str
    body: bytes
    index: int | None


def note(broker: Broker, outcome: Outcome, cassette: str, plan: Plan | None = None) -> None:
    """Say how a request ended, as the proxy does."""
    usage = plan.interaction.usage if isinstance(plan, Replay) else None
    method = plan.method if isinstance(plan, Miss) else "GET"
    path = plan.target if plan is not None else ""
    texts = ClientTexts(path if isinstance(path, str) else path())
    served = ServedRequest(
        *("tw-1", 0.0, cassette, "", method, texts),
        *(NotedAnswer(outcome, 200, tokens=() if usage is None else tokens_of(usage)), 0.0, None),
    )
    broker.journal.add(served)


async def serve(broker: Broker, cassette: str, incoming: Incoming) -> ServedAnswer:
    """Serve one request as the proxy does."""
    plan = await broker.decide(cassette, incoming)
    if isinstance(plan, Replay):
        note(broker, "replayed", cassette, plan)
        return _served("replayed", plan.interaction.response, plan.interaction.index)
    if isinstance(plan, Miss):
        note(broker, "miss", cassette, plan)
        return ServedAnswer("miss", plan.message.encode(), None)
    if plan.request.method == "GET":
        # Its client may leave before the answer has come.
        answer = await broker.recorder.follow(plan, ResponseReader(held=True)).answer()
    else:
        answer = await broker.recorder.perform(plan)
    note(broker, answer.outcome, cassette)
    return _served(answer.outcome, answer.response, answer.index)


@dataclass(slots=True)
class RunningBroker:
    """A running broker, its fake store and service, and the clients that wait for it."""

    broker: Broker
    store: FakeStore
    responder: FakeResponder
    clients: list["asyncio.Task[ServedAnswer]"] = field(default_factory=list)

    async def get(
        self,
        path: str = "/v1/x",
        *,
        cassette: str | None = None,
        route: str = "openai",
        guessed: bool = False,
        headers: Headers = (),
        method: str = "GET",
        body: bytes = b"",
    ) -> ServedAnswer:
        """Serve one request as the proxy does."""
        broker = self.broker
        base = ROUTES.routes[route].url if route in ROUTES.routes else None
        request = Request(route, method, path, headers, body, base=base or "")
        return await serve(broker, cassette or broker.active, Incoming(request, guessed))

    def start(
        self, path: str = "/v1/x", *, cassette: str | None = None, headers: Headers = ()
    ) -> "asyncio.Task[ServedAnswer]":
        """The same without waiting for it."""
        serving = self.get(path, cassette=cassette, headers=headers)
        task = asyncio.get_running_loop().create_task(serving)
        self.clients.append(task)
        return task

    async def stored(self, cassette: str = "default") -> list[bytes]:
        """The bodies the store holds, in its order."""
        found = await super(FakeStore, self.store).load(cassette, writable=False)
        if found is None:
            return []
        return [
            interaction.response.body
            for interaction in found.interactions
            if isinstance(interaction, Interaction)
        ]

    def held(self, cassette: str | None = None) -> list[bytes]:
        """The bodies the loaded cassette holds."""
        loaded = self.broker.cassette(cassette)
        assert loaded is not None
        return [
            interaction.response.body
            for interaction in loaded
            if isinstance(interaction, Interaction)
        ]


async def recorded(*bodies: str, path: str = "/v1/x", route: str = "openai") -> FakeStore:
    """A store whose default cassette has these answers to one request."""
    store = FakeStore()
    for index, body in enumerate(bodies):
        response = Response(ResponseHead(200), body.encode())
        interaction = Interaction(index, Request(route, "GET", path, base="https://up"), response)
        await store.append("default", CassetteHead("", "run-1"), Recording(interaction))
    return store


async def until(claim: Callable[[], object]) -> None:
    """Let the others go on, step by step, until a claim holds."""
    async with asyncio.timeout(60):
        while not claim():  # noqa: ASYNC110 - after which step it holds is what is tested
            await asyncio.sleep(0)


def _served(outcome: str, response: Response, index: int | None) -> ServedAnswer:
    return ServedAnswer(outcome, response.body, index)


@asynccontextmanager
async def running_broker(
    mode: Mode = "auto",
    *,
    policy: Policy | None = None,
    known: Sequence[Secret] = (),
    store: FakeStore | None = None,
    routes: RouteTable = ROUTES,
    rules: Rules = NO_RULES,
) -> AsyncIterator[RunningBroker]:
    """A running broker; when it has stopped, it has left nothing behind."""
    before = asyncio.all_tasks()
    store, responder = store or FakeStore(), FakeResponder()
    broker = Broker(
        store,
        responder,
        mode=mode,
        cassette="default",
        routes=routes,
        policy=policy or Policy(),
        new_head=lambda: HEAD,
        known=known,
        rules=rules,
    )
    running = RunningBroker(broker, store, responder)
    try:
        async with broker:
            yield running
    finally:
        await asyncio.gather(*running.clients, return_exceptions=True)
    assert store.calls[-1] == "close"
    assert broker.in_flight == 0
    # What a call leaves behind would show only as memory, after days.
    assert (broker._calls._shared, broker._calls._running) == ({}, set())
    assert asyncio.all_tasks() == before
