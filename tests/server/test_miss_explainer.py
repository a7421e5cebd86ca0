"""Misses are explained one at a time, equal ones once, and never at the cost of the answer."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tapeway.cooperative import BRIEF_S
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.matching.key import request_key
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss, MissExplanation
from tapeway.core.misses.neighbours import sought
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import Request
from tapeway.server.miss_explainer import BUSY, FAILED, MOST_WAITING, Explainer
from tapeway.stores.memory import MemoryStore
from tests.core.keys import JSON
from tests.core.requests import asked, chat, recordings_of
from tests.support.fakes.broker import until


def make_cassette(*requests: Request) -> CassetteIndex:
    requests = requests or (asked(chat("a")),)
    return CassetteIndex(
        "c", StoredCassette(CassetteHead("", "run"), tuple(recordings_of(*requests))), take=1
    )


def miss(cassette: CassetteIndex, content: str = "b") -> Miss:
    request = asked(chat(content))
    return Miss("c", request, request_key(request), searched=cassette)


async def neighbours(miss: Miss) -> Sequence[AnyInteraction]:
    assert miss.searched is not None
    request = miss.request
    return miss.searched.neighbours().near(sought(request, request.target), miss.searched.get)


def explainer_of(redaction: RequestRedaction | None = None) -> Explainer:
    return Explainer(redaction or RequestRedaction(), MemoryStore(), neighbours)


class CountingExplain:
    """Replaces the function that explains a miss: counts its calls, which wait for the gate."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, explain: Callable[[], MissExplanation]
    ) -> None:
        self.calls = self.now = self.most = 0
        self.gate = threading.Event()
        self._explain = explain
        monkeypatch.setattr("tapeway.server.miss_explainer.explain", self)

    def __call__(self, *_: object) -> MissExplanation:
        self.calls, self.now = self.calls + 1, self.now + 1
        self.most = max(self.most, self.now)
        self.gate.wait(30)
        self.now -= 1
        return self._explain()


class CountingPauses:
    """Replaces the pauses of a thread: notes after how many seconds each thread is to pause."""

    after: list[float]

    def __init__(self, work_s: float) -> None:
        self._work_s = work_s

    def step(self) -> None:
        self.after.append(self._work_s)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> CountingExplain:
    return CountingExplain(monkeypatch, MissExplanation)


async def test_others_may_run_while_a_miss_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeway.server.miss_explainer.Yielding", CountingPauses)
    monkeypatch.setattr(CountingPauses, "after", [], raising=False)
    recorded = [asked(chat(f"question {number}")) for number in range(10)]

    await explainer_of().explain(miss(make_cassette(*recorded)))

    assert len(CountingPauses.after) > len(recorded)
    assert {*CountingPauses.after} == {BRIEF_S}


async def test_a_miss_comes_back_explained() -> None:
    found = await explainer_of().explain(miss(make_cassette(asked(chat("a")))))

    assert found.message == (
        "replay miss: POST /v1/chat/completions is not in cassette 'c'; "
        "nearest #0 differs at messages[0].content: a → b"
    )
    assert found.explanation.suggestion is None


async def test_equal_misses_at_the_same_time_are_explained_once(counting: CountingExplain) -> None:
    explainer, cassette = explainer_of(), make_cassette()
    async with asyncio.TaskGroup() as group:
        burst = [group.create_task(explainer.explain(miss(cassette))) for _ in range(100)]
        await until(lambda: counting.calls)
        counting.gate.set()

    assert {task.result().explanation for task in burst} == {MissExplanation()}
    assert counting.calls == 1


async def test_different_misses_are_explained_one_at_a_time(counting: CountingExplain) -> None:
    explainer, cassette = explainer_of(), make_cassette()
    async with asyncio.TaskGroup() as group:
        for number in range(MOST_WAITING):
            group.create_task(explainer.explain(miss(cassette, str(number))))
        await until(lambda: counting.calls)
        for _ in range(100):  # steps in which a second one could begin
            await asyncio.sleep(0)
        assert counting.now == 1
        counting.gate.set()

    assert (counting.calls, counting.most) == (MOST_WAITING, 1)


async def test_one_too_many_is_answered_at_once_and_says_so(counting: CountingExplain) -> None:
    explainer, cassette = explainer_of(), make_cassette()
    async with asyncio.TaskGroup() as group:
        for number in range(MOST_WAITING):
            group.create_task(explainer.explain(miss(cassette, str(number))))
        await until(lambda: counting.calls)

        assert (await explainer.explain(miss(cassette, "more"))).explanation == BUSY
        counting.gate.set()

    assert (await explainer.explain(miss(cassette, "more"))).explanation == MissExplanation()


async def test_an_explanation_is_remembered_until_the_cassette_changes(
    counting: CountingExplain,
) -> None:
    explainer, cassette = (
        explainer_of(),
        make_cassette(asked(chat("a"))),
    )
    counting.gate.set()

    async def calls() -> int:
        await explainer.explain(miss(cassette))
        return counting.calls

    assert [await calls(), await calls()] == [1, 1]
    recording = Recording(recordings_of(asked(), asked(chat("c")))[1])
    cassette.add(recording, request_key(recording.exchange.request), cassette.take)
    assert [await calls(), await calls()] == [2, 2]
    cassette.apply_rules(Rules(ignore=("body.user",)))
    assert [await calls(), await calls()] == [3, 3]
    await explainer.explain(miss(make_cassette(asked(chat("a")))))
    assert counting.calls == 4


async def test_the_cache_of_explanations_is_bounded(
    counting: CountingExplain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeway.server.miss_explainer.CACHED", 2)
    explainer, cassette = explainer_of(), make_cassette()
    counting.gate.set()
    for content in ("a", "b", "c", "b", "a"):
        await explainer.explain(miss(cassette, content))

    assert counting.calls == 4


async def test_a_client_that_leaves_does_not_leave_the_others_waiting(
    counting: CountingExplain,
) -> None:
    explainer, cassette = explainer_of(), make_cassette()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(explainer.explain(miss(cassette)))
        await until(lambda: counting.calls)
        second = group.create_task(explainer.explain(miss(cassette)))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).explanation == BUSY
        counting.gate.set()

    assert (await explainer.explain(miss(cassette))).explanation == MissExplanation()


async def test_a_failure_leaves_the_miss_a_miss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> MissExplanation:
        raise ValueError("sk-secret")

    counting = CountingExplain(monkeypatch, broken)
    counting.gate.set()
    explainer, cassette = explainer_of(), make_cassette()

    assert (await explainer.explain(miss(cassette))).explanation == FAILED
    assert (await explainer.explain(miss(cassette))).explanation == FAILED
    assert counting.calls == 2
    assert "a miss could not be explained: ValueError at test_miss_explainer.py" in caplog.text
    assert "sk-secret" not in caplog.text


async def test_a_field_that_a_rule_makes_count_is_no_difference_where_it_is_the_same() -> None:
    rules = Rules(match=("x-tenant",))
    redaction = RequestRedaction()
    recorded, wanted = [
        redaction.redact(
            "run", replace(asked(chat(text)), headers=(*JSON, (b"x-tenant", b"acme"))), rules
        )
        for text in "ab"
    ]
    cassette = make_cassette(recorded)
    cassette.apply_rules(rules)
    found = await explainer_of(redaction).explain(
        Miss("c", wanted, request_key(wanted, rules), searched=cassette)
    )

    [near] = found.explanation.nearest
    assert [difference["path"] for difference in near.differences] == ["body.messages[0].content"]
