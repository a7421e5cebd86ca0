"""Brokers over one store, told the same as those over another: what they say may be compared.

Indexes differ between stores, so that a recording is named by its answer, which no other one has.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tapeway.core.cassette.plan import Incoming, Plan, Replay
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode, Repeats
from tapeway.core.model.interaction import Interaction, exchange_of
from tapeway.core.model.messages import Request
from tapeway.engine.broker import Broker
from tapeway.engine.editing.changes import Addition
from tapeway.engine.journal import TOLD_APART
from tapeway.engine.recording.selection import Policy
from tapeway.engine.report.summary import CassetteReport, RecordingSummary
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import TapewayError
from tapeway.ports import CassetteStore
from tapeway.server.miss_explainer import Explainer
from tests.support.fakes.broker import note
from tests.support.fakes.live_service import FakeResponder, Reply

ROUTES = RouteTable(
    {"openai": Route("openai", "https://up"), "azure": Route("azure", "https://blue/api")},
    Route("default", "https://any"),
)

_PLACEHOLDER = re.compile(r"REDACTED\.[A-Za-z0-9_.-]+")

Observed = tuple[object, ...]
"""What a client or an operator observes, without any index, so that it can be compared."""


class Sent(NamedTuple):
    """A request as a client sends it."""

    request: Request
    cassette: str | None = None
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class BrokersOnOneStore:
    """One store, and the brokers that take turns over it."""

    brokers: Sequence[Broker]
    responder: FakeResponder
    routed: bool
    """Whether every recording that was brought in names its route."""
    alone: bool
    """Whether counts are compared: with several brokers each has its own."""

    async def ask(self, turn: int, sent: Sent) -> Observed:
        """Serve a request as the proxy does: outcome, answer, and what explains a miss."""
        return (await self.ask_at_once(turn, [sent]))[0]

    async def ask_at_once(self, turn: int, sent: Sequence[Sent]) -> Sequence[Observed]:
        """Serve several, all of which are decided before the first of them is answered.

        A store takes its time to decide: otherwise the second of equal ones would on one store join
        the live call of the first, and on another find it recorded.
        """
        broker = self._broker(turn)
        names = [message.cassette or broker.active for message in sent]
        plans = await asyncio.gather(*map(partial(_decided, broker), names, sent))
        answers = await asyncio.gather(*map(partial(self._served, broker), names, plans))
        return sorted(answers, key=repr)

    async def _served(self, broker: Broker, name: str, plan: Plan | TapewayError) -> Observed:
        try:
            if isinstance(plan, TapewayError):
                raise plan
            if isinstance(plan, Replay):
                note(broker, "replayed", name, plan)
                found = plan.interaction
                trouble = "" if found.failure is None else found.failure.kind
                return "replayed", found.response.body, found.response.status, trouble, plan.note
            if isinstance(plan, Miss):
                note(broker, "miss", name, plan)
                return await self._missed(broker, name, plan)
            if not plan.policy.records:
                async with broker.recorder.relay(plan) as live:
                    pieces = [piece async for piece in live.pieces()]
                note(broker, "live", name)
                return "live", b"".join(pieces), live.head.status
            # In a task of its own, so that the calls of one step are under way together.
            answer = await broker.recorder.follow(plan, ResponseReader(held=True)).answer()
            note(broker, answer.outcome, name)
            # Each process compares the headers of those requests that it served itself.
            said = None if TOLD_APART in (answer.note or "") else answer.note
            return answer.outcome, answer.response.body, answer.response.status, "", said
        except TapewayError as error:
            note(broker, "error", name)
            return "error", error.code, error.status

    async def set_mode(self, turn: int, mode: Mode, cassette: str | None) -> Observed:
        return await self._steered(turn, self._broker(turn).set_mode(mode, cassette))

    async def insert(self, turn: int, name: str, mode: Mode | None) -> Observed:
        return await self._steered(turn, self._broker(turn).insert(name, mode))

    async def rewind(self, turn: int, name: str | None) -> Observed:
        return await self._steered(turn, self._broker(turn).rewind(name))

    async def add_rules(self, turn: int, name: str, rules: Rules) -> Observed:
        """Only for a cassette that is in and holds something: others differ in what they refuse."""
        if not (any(broker.is_loaded(name) for broker in self.brokers) and await self._held(name)):
            return ("nothing there",)
        both = await self._broker(turn).add_rules(name, rules)
        # What the take had used up is known to a cassette in memory alone.
        await self.rewind(turn, name)
        return ("rules", both)

    async def eject(self, _: int, name: str, *, prune: bool) -> Observed:
        """Its report, from one that has it in."""
        held = await self._held(name)
        broker = next(
            (candidate for candidate in self.brokers if candidate.is_loaded(name)), self.brokers[0]
        )
        try:
            report = await broker.eject(name, prune=prune)
        except TapewayError as error:
            return "error", error.code
        await self._let_go(name)
        return self._observed_report(report, held)

    async def edit(self, turn: int, name: str, place: int, changed: Interaction | None) -> Observed:
        """Replace or remove one of the recordings."""
        held = sorted(await self._held(name), key=lambda exchange: exchange.response.body)
        if place >= len(held):
            return ("nothing there",)
        await self._broker(turn).editor.edit(name, held[place].index, changed)
        return await self.state(name)

    async def append(self, turn: int, name: str, item: Interaction) -> Observed:
        await self._broker(turn).editor.append(name, [Addition(item)])
        return await self.state(name)

    async def put(self, turn: int, name: str, cassette: StoredCassette) -> Observed:
        await self._broker(turn).editor.put(name, cassette)
        return await self.state(name)

    async def remove(self, turn: int, name: str) -> Observed:
        if not await self._held(name):
            return ("nothing there",)
        await self._broker(turn).editor.remove(name)
        await self._let_go(name)
        return await self.state(name)

    async def state(self, name: str) -> Observed:
        """What the store holds."""
        return tuple(sorted(await self.order(name)))

    async def order(self, name: str) -> list[bytes]:
        """The same in its order."""
        return [exchange.response.body for exchange in await self._held(name)]

    async def reports(self) -> Observed:
        """A report for each cassette: counts only where one broker made them all."""
        found = [
            (report.name, self._observed_report(report, await self._held(report.name)))
            for broker in self.brokers
            for report in await broker.reports()
        ]
        return tuple(sorted(dict(found).items()))

    async def listed(self) -> Observed:
        """What status says of the cassettes that are in."""
        found = await self.brokers[0].source.counts() if self.alone else ()
        return tuple(sorted((count.name, count.interactions, count.unused) for count in found))

    def _broker(self, turn: int) -> Broker:
        return self.brokers[turn % len(self.brokers)]

    async def _let_go(self, name: str) -> None:
        """Each of several knows for itself what is in."""
        for broker in self.brokers:
            if broker.is_loaded(name):
                await broker.eject(name)

    async def _missed(self, broker: Broker, name: str, miss: Miss) -> Observed:
        named = _named(await self._held(name))
        explained = await Explainer(
            broker.redaction, broker.store, broker.cassettes.neighbours
        ).explain(miss)
        nearest = [
            (named[near.index], *map(str, near.differences), near.more)
            for near in explained.explanation.nearest
        ]
        used_up = [named[index] for index in miss.used_up]
        text = _PLACEHOLDER.sub("REDACTED", str(nearest))
        return "miss", text, explained.explanation.suggestion, used_up, miss.note

    async def _steered(self, turn: int, steering: Awaitable[None]) -> Observed:
        try:
            await steering
        except TapewayError as error:
            return "error", error.code
        broker = self._broker(turn)
        return broker.mode, broker.active

    async def _held(self, name: str) -> list[Interaction]:
        stored = await self.brokers[0].editor.stored(name)
        found = () if stored is None else stored.interactions
        return [exchange for exchange in map(exchange_of, found) if exchange is not None]

    def _observed_report(self, report: CassetteReport, held: Sequence[Interaction]) -> Observed:
        named = _named(held)

        def items(some: Sequence[RecordingSummary]) -> list[tuple[bytes, str, str]]:
            # Nor does it know which part of a path is its host's route.
            return [
                (
                    named[recording.index],
                    recording.method,
                    _PLACEHOLDER.sub("REDACTED", recording.path) if self.routed else "",
                )
                for recording in some
            ]

        counts: Observed = ()
        if self.alone:
            counts = (
                *(report.replayed, report.recorded, report.live, report.retries),
                *(
                    [
                        (miss.method, _PLACEHOLDER.sub("REDACTED", miss.path), miss.times)
                        for miss in report.misses
                    ],
                    sorted(report.usage.items()),
                ),
            )
        # A database does not know which route a host is that no recording names.
        groups = report.duplicates if self.routed else ()
        duplicates = sorted(sorted(items(group)) for group in groups)
        return sorted(items(report.unused)), duplicates, counts


async def _decided(broker: Broker, name: str, sent: Sent) -> Plan | TapewayError:
    try:
        await broker.confirm()
        came = Incoming(sent.request, sent.guessed, broker.mode_of(name))
        return await broker.decide(name, came)
    except TapewayError as error:
        return error


def _named(held: Sequence[Interaction]) -> Mapping[int, bytes]:
    return {recording.index: recording.response.body for recording in held}


@asynccontextmanager
async def brokers_on(
    stores: Sequence[CassetteStore],
    reply: Reply,
    *,
    mode: Mode,
    repeats: Repeats | None,
    record_failures: bool = False,
    rules: Rules = NO_RULES,
    routed: bool = True,
    alone: bool = True,
) -> AsyncIterator[BrokersOnOneStore]:
    """A broker for each of the stores, which are one to them."""
    responder = FakeResponder(reply)
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                Broker(
                    store,
                    responder,
                    mode=mode,
                    cassette="default",
                    routes=ROUTES,
                    policy=Policy(repeats=repeats, record_failures=record_failures),
                    new_head=partial(CassetteHead, "2026-01-01T00:00:00+00:00", "run"),
                    rules=rules,
                )
            )
            for store in stores
        ]
        yield BrokersOnOneStore(brokers, responder, routed, alone)
