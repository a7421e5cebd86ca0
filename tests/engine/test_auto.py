"""Mode `auto`: in the take that made or used a recording, only calls to a model are answered again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tapeway.core.cassette.plan import Incoming, LiveCall
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request
from tapeway.engine.broker import Broker
from tapeway.engine.recording import storing
from tapeway.engine.recording.selection import Policy
from tapeway.errors import UpstreamError
from tests.support.fakes.broker import ServedAnswer, running_broker, serve
from tests.support.fakes.live_service import FakeAnswer, FakeResponder
from tests.support.fakes.shared_brokers import shared_brokers

pytestmark = pytest.mark.parametrize("kind", ["memory", "one instance", "two instances"])

MODELS = (
    *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/moderations"),
    *("/v1/messages/count_tokens", "/v1/images/generations", "/v1/audio/speech", "/v1/rerank"),
)


@dataclass(slots=True)
class Clients:
    """Clients of a store's brokers, which take turns, and the service behind them."""

    brokers: list[Broker]
    responder: FakeResponder
    _turn: int = 0

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Headers = (),
        slot: int | None = None,
    ) -> ServedAnswer:
        self._turn += 1
        broker = self.brokers[self._turn % len(self.brokers)]
        request = Request("openai", method, target, headers, body, "https://up")
        # As the proxy does before it decides.
        await broker.confirm()
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
async def test_a_job_is_asked_for_each_time_and_replayed_in_order(
    kind: str, repeats: Repeats | None
) -> None:
    async with clients(kind, repeats=repeats) as ask:
        ask.responder.reply = job(done_at=3)
        polled = [await ask("GET", "/jobs/1") for _ in range(4)]
        await ask.brokers[0].set_mode("replay")
        again = [await ask("GET", "/jobs/1") for _ in range(4)]

    if repeats == "first":
        # The rule answers with the first one alone.
        again = again[:1]
    assert outcomes(polled) == ["recorded"] * 4
    assert [answer.body for answer in again] == [answer.body for answer in polled[: len(again)]]


async def test_a_call_to_a_model_is_answered_from_the_take_that_recorded_it(kind: str) -> None:
    async with clients(kind) as ask:
        asked = [f"POST {path}" for path in MODELS]
        assert await ask.said(*asked) == [
            f"recorded answer {at}" for at in range(1, len(asked) + 1)
        ]
        assert await ask.said(*asked) == [
            f"replayed answer {at}" for at in range(1, len(asked) + 1)
        ]


async def test_equal_writes_and_reads_by_post_are_each_sent(kind: str) -> None:
    lines = ["POST /graphql", "POST /graphql", "PUT /x", "PUT /x", "GET /x", "GET /x"]
    async with clients(kind) as ask:
        live = await ask.said(*lines)
        await ask.brokers[0].set_mode("replay")
        again = await ask.said(*lines)

    assert live == [f"recorded answer {at}" for at in range(1, 7)]
    assert again == [f"replayed answer {at}" for at in range(1, 7)]


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": "x", "background": true}',
        b'{"input": "x", "conversation": {"id": "conv_1"}}',
        b'{"input": "x", "tools": [{"type": "code_interpreter", "container": "c_1"}]}',
    ],
)
async def test_a_call_that_changes_something_at_the_service_is_sent_again(
    kind: str, body: bytes
) -> None:
    async with clients(kind) as ask:
        found = [await ask("POST", "/v1/responses", body=body) for _ in range(2)]

    assert outcomes(found) == ["recorded"] * 2


async def test_recordings_of_earlier_takes_answer_once_each_and_then_the_service(
    kind: str,
) -> None:
    async with clients(kind) as ask:
        ask.responder.reply = job(done_at=4)
        assert outcomes([await ask("GET", "/jobs/1") for _ in range(2)]) == ["recorded"] * 2
        await ask.brokers[0].rewind()
        later = [await ask("GET", "/jobs/1") for _ in range(4)]
        await ask.brokers[0].rewind()
        latest = [await ask("GET", "/jobs/1") for _ in range(5)]

    assert outcomes(later) == ["replayed", "replayed", "recorded", "recorded"]
    assert outcomes(latest) == ["replayed"] * 4 + ["recorded"]
    assert [answer.body for answer in latest[:4]] == [answer.body for answer in later]


async def test_after_a_write_that_was_asked_live_earlier_takes_answer_no_more_on_its_route(
    kind: str,
) -> None:
    script = ["GET /items", "GET /other", "POST /v1/embeddings"]
    async with clients(kind) as ask:
        await ask.said(*script)
        await ask.brokers[0].rewind()
        assert await ask.said(script[0]) == ["replayed answer 1"]
        await ask.said("POST /items")
        found = await ask.said(*script)

    assert found == ["recorded answer 5", "recorded answer 6", "replayed answer 3"]


async def test_a_call_to_a_model_ends_nothing(kind: str) -> None:
    async with clients(kind) as ask:
        await ask.said("GET /items")
        await ask.brokers[0].rewind()

        assert await ask.said("POST /v1/embeddings", "GET /items") == [
            *("recorded answer 2", "replayed answer 1"),
        ]


async def test_an_answer_that_equals_the_one_before_it_is_counted_there(kind: str) -> None:
    replies = [b"queued", b"queued", b"queued", b"done", b"queued", b"queued"]
    async with clients(kind) as ask:
        ask.responder.reply = lambda number: FakeAnswer(
            replies[number - 1], headers=((b"Date", b"%d" % number),)
        )
        live = [await ask("GET", "/job") for _ in replies]
        stored = await ask.brokers[0].source.read("default")
        await ask.brokers[0].set_mode("replay")
        again = [await ask("GET", "/job") for _ in replies]
        await ask.brokers[0].set_mode("auto")
        latest = [await ask("GET", "/job") for _ in replies]

    assert stored is not None
    kept = [item for item in stored.interactions if isinstance(item, Interaction)]
    assert outcomes(live) == ["recorded"] * len(replies)
    assert [(item.response.body, item.again) for item in kept] == [
        *((b"queued", 2), (b"done", 0), (b"queued", 1)),
    ]
    assert [answer.body for answer in again] == replies
    assert [(answer.outcome, answer.body) for answer in latest] == [
        ("replayed", reply) for reply in replies
    ]


async def test_a_retry_of_a_marked_call_gets_the_answer_of_the_call(kind: str) -> None:
    async with clients(kind) as ask:
        for name in (b"Idempotency-Key", b"amz-sdk-invocation-id"):
            marked = [((name, mark),) for mark in (b"one", b"one", b"two", b"one", b"two")]
            found = [await ask("POST", "/charges", headers=headers) for headers in marked]

            assert outcomes(found) == ["recorded", "replayed", "recorded", "replayed", "replayed"]
            one, two = found[0].body, found[2].body
            assert [answer.body for answer in found] == [one, one, two, one, two]


async def test_a_retry_that_a_client_counts_gets_the_answer_of_the_call(kind: str) -> None:
    async with clients(kind) as ask:
        counted = [((b"x-stainless-retry-count", number),) for number in (b"0", b"1", b"0")]
        found = [await ask("POST", "/threads", headers=headers) for headers in counted]

    assert outcomes(found) == ["recorded", "replayed", "recorded"]


async def test_a_retry_of_another_caller_or_with_another_body_is_sent(kind: str) -> None:
    mark: Headers = ((b"Idempotency-Key", b"one"),)
    async with clients(kind) as ask:
        found = [
            await ask("POST", "/charges", body=b"a", headers=mark),
            await ask("POST", "/charges", body=b"b", headers=mark),
        ]

    assert outcomes(found) == ["recorded"] * 2


async def test_a_rule_names_requests_that_are_answered_again(kind: str) -> None:
    rules = Rules(reuse=("GET /v1/models/*", "POST /graphql", "GET /static/**"))
    lines = ["GET /v1/models/m", "POST /graphql", "GET /static/a/b.css"]
    others = ["GET /v1/models", "PUT /graphql", "GET /v1/models/m/n"]
    async with clients(kind, rules=rules) as ask:
        await ask.said(*lines, *others)
        found = await ask.said(*lines, *others)

    assert [line.split()[0] for line in found] == ["replayed"] * 3 + ["recorded"] * 3


@pytest.mark.parametrize("error", ["upstream_unreachable", "upstream_dns", "upstream_reset"])
async def test_a_read_is_answered_from_its_last_recording_where_the_service_is_away(
    kind: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with clients(kind) as ask:
        await ask.said("GET /items", "GET /items", "POST /items")

        def away(number: int) -> FakeAnswer:
            raise UpstreamError("nobody there", code=error)

        ask.responder.reply = away
        assert await ask.said("GET /items") == ["replayed answer 2"]
        for method in ("POST", "DELETE"):
            with pytest.raises(UpstreamError):
                await ask(method, "/items")
        with pytest.raises(UpstreamError):
            await ask("GET", "/nothing")

    assert "the service cannot be reached: #1 answers" in caplog.text


@pytest.mark.parametrize("slot", [None, 7])
async def test_where_the_service_is_away_no_caller_gets_what_another_has_just_recorded(
    kind: str, slot: int | None
) -> None:
    ada, bob = [((b"Authorization", b"Bearer " + name * 8),) for name in (b"adas", b"bobs")]
    async with clients(kind) as ask:
        await ask("GET", "/mail", headers=ada, slot=slot)

        def away(number: int) -> FakeAnswer:
            raise UpstreamError("nobody there", code="upstream_unreachable")

        ask.responder.reply = away
        with pytest.raises(UpstreamError):
            await ask("GET", "/mail", headers=bob, slot=slot)
        assert (await ask("GET", "/mail", headers=ada, slot=slot)).outcome == "replayed"


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


@pytest.mark.parametrize(
    ("method", "path", "calls"),
    [("GET", "/jobs/1", 1), ("POST", "/v1/embeddings", 1), ("POST", "/charges", 4)],
)
async def test_equal_reads_and_calls_to_a_model_at_the_same_time_are_one_call_and_writes_are_not(
    kind: str, method: str, path: str, calls: int
) -> None:
    async with clients(kind) as ask:
        ask.responder.gate.clear()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(method, path)) for _ in range(4)]
            await ask.responder.reached(calls)
            for _ in range(100):
                await asyncio.sleep(0)
            ask.responder.gate.set()

        found = [task.result() for task in asked]
        assert len({answer.body for answer in found}) == len(ask.responder.asked) == calls
        assert outcomes(found).count("recorded") == calls


async def test_the_take_of_a_slot_has_writes_of_its_own(kind: str) -> None:
    async with clients(kind) as ask:
        await ask.said("GET /items", "GET /other")
        await ask.brokers[0].rewind()
        await ask.brokers[0].set_slot("a", "default")
        slot = ask.brokers[0].slot("a").take
        assert (await ask("POST", "/items", slot=slot)).outcome == "recorded"

        assert (await ask("GET", "/items", slot=slot)).outcome == "recorded"
        assert (await ask("GET", "/other")).outcome == "replayed"


async def test_the_journal_and_the_log_say_why_it_was_asked_again(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with clients(kind) as ask:
        await ask.said("GET /jobs/1", "GET /jobs/1", "GET /jobs/2", "GET /jobs/2")
        request = Request("openai", "GET", "/jobs/1", base="https://up")
        plan = await ask.brokers[0].decide("default", Incoming(request))

        assert isinstance(plan, LiveCall)
        assert plan.note == "asked live: #1 may be out of date"
    said = [line for line in caplog.messages if "POST /api/v1/rewind" in line]
    assert 1 <= len(said) <= len(ask.brokers)


async def test_the_log_names_a_request_that_got_the_same_answer_very_often(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "MANY_REPEATS", 3)
    async with clients(kind) as ask:
        ask.responder.reply = lambda number: FakeAnswer(b"up")
        await ask.said(*["GET /health?full=1"] * 6)

    (said,) = [line for line in caplog.messages if "reuse" in line and "same answer" in line]
    assert 'reuse = ["GET /health"]' in said


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
