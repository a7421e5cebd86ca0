"""In `auto`: what is out of date does not answer in the take that recorded it, on any store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tapeway.core.cassette.plan import Incoming, LiveCall
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.control import Repeats
from tapeway.core.model.messages import Request
from tapeway.engine.broker import Broker
from tapeway.engine.recorder import Policy
from tests.support.fakes.broker import ServedAnswer, running_broker, serve
from tests.support.fakes.live_service import FakeAnswer, FakeResponder
from tests.support.fakes.shared_brokers import shared_brokers

pytestmark = pytest.mark.parametrize("kind", ["memory", "one instance", "two instances"])


@dataclass(slots=True)
class Clients:
    """Clients of a store's brokers, which take turns, and the service behind them."""

    brokers: list[Broker]
    responder: FakeResponder
    _turn: int = 0

    async def __call__(
        self, method: str, target: str, *, body: bytes = b"", slot: int | None = None
    ) -> ServedAnswer:
        self._turn += 1
        broker = self.brokers[self._turn % len(self.brokers)]
        request = Request("openai", method, target, (), body, "https://up")
        return await serve(broker, "default", Incoming(request, take=slot))

    async def said(self, *lines: str) -> list[str]:
        """The outcome and the answer of each request."""
        found = [await self(*line.split(" ", 1)) for line in lines]
        return [f"{answer.outcome} {answer.body.decode()}" for answer in found]


@asynccontextmanager
async def clients(
    kind: str, *, repeats: Repeats | None = None, rules: Rules = NO_RULES
) -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        if kind == "memory":
            context = running_broker(policy=Policy(repeats=repeats), rules=rules)
            running = await stack.enter_async_context(context)
            yield Clients([running.broker], running.responder)
        else:
            count = 1 if kind == "one instance" else 2
            shared = shared_brokers(count=count, repeats=repeats, rules=rules)
            found = await stack.enter_async_context(shared)
            yield Clients([instance.broker for instance in found.instances], found.responder)


def job(done_at: int) -> Callable[[int], FakeAnswer]:
    """A job that goes on until it was asked for so often."""

    def reply(number: int) -> FakeAnswer:
        status = b"completed" if number >= done_at else b"in_progress"
        return FakeAnswer(b'{"n": %d, "status": "%b"}' % (number, status))

    return reply


def outcomes(found: list[ServedAnswer]) -> list[str]:
    return [answer.outcome for answer in found]


@pytest.mark.parametrize("repeats", [None, "last", "miss", "cycle", "first"])
async def test_a_job_is_asked_for_until_it_is_done_and_replayed_in_order(
    kind: str, repeats: Repeats | None
) -> None:
    async with clients(kind, repeats=repeats) as ask:
        ask.responder.reply = job(done_at=3)
        polled = [await ask("GET", "/jobs/1") for _ in range(4)]
        await ask.brokers[0].set_mode("replay")
        again = [await ask("GET", "/jobs/1") for _ in range(3)]

    asked_on = "recorded" if repeats == "miss" else "replayed"
    if repeats == "first":
        # The rule answers with the first one alone.
        again = again[:1]
    assert outcomes(polled) == ["recorded"] * 3 + [asked_on]
    assert [answer.body for answer in again] == [answer.body for answer in polled[: len(again)]]


async def test_in_a_later_take_the_recordings_answer_first_and_then_the_service(kind: str) -> None:
    async with clients(kind) as ask:
        ask.responder.reply = job(done_at=4)
        assert outcomes([await ask("GET", "/jobs/1") for _ in range(2)]) == ["recorded"] * 2
        await ask.brokers[0].rewind()
        later = [await ask("GET", "/jobs/1") for _ in range(5)]
        await ask.brokers[0].rewind()
        latest = [await ask("GET", "/jobs/1") for _ in range(5)]

    assert outcomes(later) == ["replayed", "replayed", "recorded", "recorded", "replayed"]
    assert outcomes(latest) == ["replayed"] * 5
    assert [answer.body for answer in latest] == [answer.body for answer in later]


async def test_an_accepted_write_is_sent_again(kind: str) -> None:
    async with clients(kind) as ask:
        ask.responder.reply = lambda number: FakeAnswer(b"%d" % number, status=202)

        assert await ask.said("POST /jobs", "POST /jobs") == ["recorded 1", "recorded 2"]


async def test_a_rule_says_what_else_is_not_final(kind: str) -> None:
    async with clients(kind, rules=Rules(pending=("body.left=1",))) as ask:
        ask.responder.reply = lambda number: FakeAnswer(b'{"left": %d}' % (2 - number))

        assert await ask.said(*["GET /x"] * 3) == [
            *('recorded {"left": 1}', 'recorded {"left": 0}', 'replayed {"left": 0}'),
        ]


async def test_a_read_after_a_write_is_asked_again_and_replayed_in_order(kind: str) -> None:
    script = [
        *("GET /items", "GET /items/1?full=1", "HEAD /items", "GET /other", "POST /items"),
        *("GET /items", "GET /items/1?full=1", "HEAD /items", "GET /other", "DELETE /items/1"),
        *("GET /items", "GET /items/1?full=1", "GET /items", "GET /other", "POST /items"),
    ]
    async with clients(kind) as ask:
        live = await ask.said(*script)
        await ask.brokers[0].set_mode("replay")
        again = await ask.said(*script)

    asked = [line.startswith("recorded") for line in live]
    assert asked == [
        *(True, True, True, True, True),
        *(True, True, True, False, True),
        *(True, True, False, False, False),
    ]
    assert [text.partition(" ")[2] for text in again] == [text.partition(" ")[2] for text in live]


async def test_a_write_that_failed_and_a_call_to_a_model_end_nothing(kind: str) -> None:
    async with clients(kind) as ask:
        await ask("GET", "/v1/files")
        await ask("GET", "/v1/messages")
        ask.responder.reply = lambda number: FakeAnswer(b"no", status=409)
        assert (await ask("POST", "/v1/files")).outcome == "live"
        ask.responder.reply = lambda number: FakeAnswer(b"{}")
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"):
            assert (await ask("POST", path, body=b'{"model":"m"}')).outcome == "recorded"

        assert (await ask("GET", "/v1/files")).outcome == "replayed"
        assert (await ask("GET", "/v1/messages")).outcome == "replayed"


@pytest.mark.parametrize(
    ("write", "read"),
    [
        ("/v1/responses/resp_1/cancel", "/v1/responses/resp_1"),
        ("/v1/messages/batches", "/v1/messages/batches?limit=20"),
        ("/v1/models/veo:predictLongRunning", "/v1/models/veo:predictLongRunning"),
        ("/v1/threads/t1/messages", "/v1/threads/t1/messages"),
    ],
)
async def test_a_call_beside_a_model_is_a_write(kind: str, write: str, read: str) -> None:
    async with clients(kind) as ask:
        assert await ask.said(f"GET {read}", f"POST {write}", f"GET {read}") == [
            *("recorded answer 1", "recorded answer 2", "recorded answer 3"),
        ]


async def test_a_write_whose_answer_is_not_recorded_counts_too(kind: str) -> None:
    async with clients(kind) as ask:
        # By now each instance remembers it.
        assert outcomes([await ask("GET", "/cart") for _ in range(4)]) == [
            *("recorded", "replayed", "replayed", "replayed"),
        ]
        ask.responder.reply = lambda number: FakeAnswer(b"see", status=303)
        assert (await ask("POST", "/cart/add")).outcome == "live"
        ask.responder.reply = lambda number: FakeAnswer(b"%d things" % number)

        assert await ask.said("GET /cart", "GET /cart") == [
            *("recorded 3 things", "replayed 3 things"),
        ]


async def test_a_read_that_was_asked_before_a_write_ended_answers_nobody_after_it(
    kind: str,
) -> None:
    async with clients(kind) as ask:
        gate, responder = asyncio.Event(), ask.responder
        served: dict[str, asyncio.Task[ServedAnswer]] = {}

        async def slow(request: Request, number: int) -> FakeAnswer:
            if number == 1:
                await gate.wait()
            return FakeAnswer(b"%b %d" % (request.method.encode(), number))

        _answer_in_turn(responder, slow)
        async with asyncio.TaskGroup() as group:
            served["early"] = group.create_task(ask("GET", "/items"))
            await responder.reached(1)
            assert (await ask("POST", "/items")).body == b"POST 2"
            served["late"] = group.create_task(ask("GET", "/items"))
            await responder.reached(3)
            gate.set()

        early, late = served["early"].result(), served["late"].result()
        assert (early.outcome, early.body) == ("recorded", b"GET 1")
        assert (late.outcome, late.body) == ("recorded", b"GET 3")


async def test_equal_polls_at_the_same_time_are_one_call(kind: str) -> None:
    async with clients(kind) as ask:
        ask.responder.reply = job(done_at=9)
        ask.responder.gate.clear()
        async with asyncio.TaskGroup() as group:
            polls = [group.create_task(ask("GET", "/jobs/1")) for _ in range(4)]
            await ask.responder.reached(1)
            for _ in range(100):
                await asyncio.sleep(0)
            ask.responder.gate.set()

        assert {poll.result().body for poll in polls} == {b'{"n": 1, "status": "in_progress"}'}
        assert sorted(outcomes([poll.result() for poll in polls])) == [
            *("recorded", "replayed", "replayed", "replayed"),
        ]


async def test_the_take_of_a_slot_has_writes_of_its_own(kind: str) -> None:
    async with clients(kind) as ask:
        await ask.brokers[0].set_slot("a", "default")
        slot = ask.brokers[0].slot("a").take
        for take in (slot, None):
            assert (await ask("GET", "/items", slot=take)).outcome == (
                "recorded" if take else "replayed"
            )
        assert (await ask("POST", "/items", slot=slot)).outcome == "recorded"

        assert (await ask("GET", "/items", slot=slot)).outcome == "recorded"
        assert (await ask("GET", "/items")).outcome == "replayed"


async def test_the_journal_says_why_it_was_asked_again(kind: str) -> None:
    async with clients(kind) as ask:
        ask.responder.reply = job(done_at=9)
        await ask("GET", "/jobs/1")
        request = Request("openai", "GET", "/jobs/1", base="https://up")
        plan = await ask.brokers[0].decide("default", Incoming(request))

        assert isinstance(plan, LiveCall)
        assert plan.note == "asked live: #0 is not final: its status is 'in_progress'"


def _answer_in_turn(
    responder: FakeResponder, reply: Callable[[Request, int], Awaitable[FakeAnswer]]
) -> None:
    """Have each call be answered by this, whatever others wait for."""

    @asynccontextmanager
    async def ask(request: Request) -> AsyncIterator[FakeAnswer]:
        responder.asked.append(request)
        responder._came.set()
        yield await reply(request, len(responder.asked))

    responder.ask = ask  # type: ignore[method-assign]
