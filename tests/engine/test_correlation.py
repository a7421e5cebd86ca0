"""Conversations whose identifiers have other names, asked of a broker as an app asks them."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.correlation.index import FEW_LOADED
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.engine.correlation import SMALL_BODY, Correlation, CorrelationMatches
from tapeway.engine.recording.selection import Policy
from tests.core.keys import JSON
from tests.support.fakes.broker import RunningBroker, ServedAnswer, running_broker
from tests.support.fakes.failing_store import FakeStore
from tests.support.fakes.live_service import FakeAnswer

CALLS = ("call_h5Xw0Vb1jZ", "call_Qp7Lm2Kd9R")


def turn(prompt: str, *results: tuple[str, str]) -> bytes:
    """A request of a loop with tools: the prompt, and each call with its result."""
    calls: list[Json] = [{"id": name, "type": "function"} for name, _ in results]
    said: list[Json] = [{"role": "user", "content": prompt}]
    if calls:
        said.append({"role": "assistant", "tool_calls": calls})
    said += [{"role": "tool", "tool_call_id": name, "content": text} for name, text in results]
    return dump({"model": "m", "messages": said})


def answer(*calls: str, text: str = "") -> bytes:
    return dump({"tool_calls": [{"id": name} for name in calls], "text": text})


async def tape(*exchanges: tuple[bytes, bytes]) -> FakeStore:
    store = FakeStore()
    held = [
        Interaction(
            index,
            Request("openai", "POST", "/v1/chat", JSON, body, "https://up"),
            Response(ResponseHead(200, headers=JSON), reply),
        )
        for index, (body, reply) in enumerate(exchanges)
    ]
    await store.save("default", StoredCassette(CassetteHead("", "run-1"), tuple(held)))
    return store


LOOP = (
    (turn("weather?"), answer(*CALLS)),
    (turn("weather?", (CALLS[0], "sun"), (CALLS[1], "snow")), answer("call_Zz9Yy8Xx7W")),
    (
        turn("weather?", (CALLS[0], "sun"), (CALLS[1], "snow"), ("call_Zz9Yy8Xx7W", "fog")),
        answer(text="done"),
    ),
)


async def ask(running: RunningBroker, body: bytes) -> ServedAnswer:
    return await running.get("/v1/chat", method="POST", headers=JSON, body=body)


@pytest.mark.parametrize(
    "results",
    [
        ((CALLS[0], "snow"), (CALLS[1], "sun")),
        ((CALLS[1], "sun"), (CALLS[0], "snow")),
        (("my_1", "snow"), ("my_2", "sun")),
        (("my_1", "sun"), ("my_1", "snow")),
    ],
)
async def test_results_swapped_between_calls_miss(
    results: tuple[tuple[str, str], ...],
) -> None:
    async with running_broker("replay", store=await tape(*LOOP)) as running:
        await ask(running, turn("weather?"))

        assert (await ask(running, turn("weather?", *results))).outcome == "miss"


async def test_results_swapped_between_ids_seen_before_miss() -> None:
    # With the history at the service, a request shows its own results alone.
    both: list[Json] = [
        {"call_id": name, "output": text} for name, text in zip(CALLS, ("a", "a"), strict=True)
    ]
    recorded = [dump({"input": [*both], "step": step}) for step in (1, 2)]
    store = await tape((turn("x"), answer(*CALLS)), *[(request, answer()) for request in recorded])

    def sent(step: int, *names: str) -> bytes:
        return dump({"input": [{"call_id": n, "output": "a"} for n in names], "step": step})

    async with running_broker("replay", store=store) as running:
        assert (await ask(running, sent(1, "x", "y"))).outcome == "replayed"
        assert (await ask(running, sent(2, "y", "x"))).outcome == "miss"
        assert (await ask(running, sent(2, "x", "y"))).outcome == "replayed"
        await running.broker.rewind()
        assert (await ask(running, sent(2, "y", "x"))).outcome == "replayed"


async def test_repeats_are_served_in_turn_and_used_up() -> None:
    again = (LOOP[1][0], answer(text="again"))
    async with running_broker(
        "replay", policy=Policy(repeats="miss"), store=await tape(*LOOP, again)
    ) as running:
        served = [
            await ask(running, turn("weather?", ("x", "sun"), ("y", "snow"))) for _ in range(3)
        ]

        assert [recording.index for recording in served] == [1, 3, None]


async def test_what_is_recorded_in_this_take_is_recognised_too() -> None:
    async with running_broker("auto") as running:
        replies = [answer(*CALLS), answer(text="done")]
        running.responder.reply = lambda number: FakeAnswer(replies[number - 1], headers=JSON)
        await ask(running, turn("weather?"))
        first = await ask(running, turn("weather?", (CALLS[0], "sun")))
        renamed = await ask(running, turn("weather?", ("my_1", "sun")))

        assert (first.outcome, renamed.outcome, renamed.index) == ("recorded", "replayed", 1)


async def plan(running: RunningBroker, body: bytes) -> Replay | LiveCall:
    request = Request("openai", "POST", "/v1/chat", JSON, body, "https://up")
    found = await running.broker.decide("default", Incoming(request))
    assert isinstance(found, Replay | LiveCall)
    return found


async def test_identifiers_of_a_recording_sent_upstream_are_flagged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with running_broker("auto", store=await tape(*LOOP)) as running:
        for text in ("rain", "hail"):
            planned = await plan(running, turn("weather?", (CALLS[0], text)))
            assert isinstance(planned, LiveCall)
            assert planned.replayed_ids == (CALLS[0],)
            assert CALLS[0] in (planned.note or "")

    assert len([record for record in caplog.records if "identifiers" in record.message]) == 1


async def test_identifiers_the_upstream_issued_in_this_take_are_not_flagged() -> None:
    async with running_broker("auto") as running:
        running.responder.reply = lambda number: FakeAnswer(answer(*CALLS), headers=JSON)
        await ask(running, turn("weather?"))

        live = await plan(running, turn("weather?", (CALLS[0], "sun")))
        assert isinstance(live, LiveCall)
        assert (live.replayed_ids, live.note) == ((), None)

        await running.broker.rewind()
        later = await plan(running, turn("weather?", (CALLS[0], "sun")))
        assert isinstance(later, LiveCall)
        assert later.replayed_ids == (CALLS[0],)


async def test_large_cassettes_and_requests_are_correlated_in_a_thread() -> None:
    prompt = "word " * SMALL_BODY
    loop = (
        (turn(prompt), answer(*CALLS)),
        (turn(prompt, (CALLS[0], "sun")), answer(text="done")),
    )
    others = [(turn(f"question {number}"), answer()) for number in range(FEW_LOADED)]
    async with running_broker("replay", store=await tape(*others, *loop)) as running:
        found = await ask(running, turn(prompt, ("mine", "sun")))

        assert (found.outcome, found.index) == ("replayed", FEW_LOADED + 1)


async def test_among_many_recordings_a_request_without_identifiers_needs_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [(turn(f"question {number}"), answer()) for number in range(FEW_LOADED + 1)]
    async with running_broker("auto", store=await tape(*others)) as running:
        assert (await ask(running, turn("question 0"))).outcome == "replayed"
        with monkeypatch.context() as without:
            without.delattr(asyncio, "to_thread")
            assert (await ask(running, turn("new"))).outcome == "recorded"

        # One that carries an identifier is searched in a thread.
        monkeypatch.setattr(asyncio, "to_thread", _refused)
        with pytest.raises(_Refused):
            await ask(running, turn("new", ("mine", "sun")))


@pytest.mark.parametrize(("mode", "searches"), [("auto", "_search"), ("record", "find")])
async def test_an_answer_added_while_a_thread_searches_is_read(
    mode: Mode, searches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [(turn(f"question {number}"), answer()) for number in range(FEW_LOADED + 1)]
    unread: list[int] = []
    in_thread = asyncio.to_thread

    async def adding(work: Callable[..., object], *arguments: object) -> object:
        if work.__name__ == searches:
            cassette = running.broker.cassette()
            assert cassette is not None
            assert cassette.correlation is not None
            (first, *_) = cassette.snapshot()
            assert isinstance(first, Interaction)
            cassette.correlation.add(replace(first, index=1000))
            unread.append(cassette.correlation.unread)
        return await in_thread(work, *arguments)

    async with running_broker(mode, store=await tape(*others)) as running:
        monkeypatch.setattr(asyncio, "to_thread", adding)
        assert (await ask(running, turn("new", ("mine", "sun")))).outcome == "recorded"

    assert unread == [len(others)]


class _Refused(Exception):
    """What a test's thread answers."""


async def _refused(*_: object) -> None:
    raise _Refused


async def test_what_was_recorded_meanwhile_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker("auto", store=await tape(*LOOP)) as running:

        async def look(*_: object) -> CorrelationMatches:
            monkeypatch.undo()
            assert (await ask(running, turn("new"))).outcome == "recorded"
            return CorrelationMatches()

        monkeypatch.setattr(Correlation, "search", look)

        assert (await ask(running, turn("new"))).outcome == "replayed"


async def test_a_cassette_that_was_unloaded_meanwhile_is_loaded_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker("auto", store=await tape(*LOOP)) as running:

        async def look(*_: object) -> CorrelationMatches:
            await running.broker.eject()
            return CorrelationMatches()

        monkeypatch.setattr(Correlation, "search", look)

        assert (await ask(running, turn("new"))).outcome == "recorded"
        assert len(running.held()) == 4


async def test_equal_misses_during_a_slow_correlation_are_one_call() -> None:
    others = [(turn(f"question {number}"), answer()) for number in range(FEW_LOADED + 1)]
    async with running_broker("auto", store=await tape(*others)) as running:
        one, two = running.start("/v1/new"), running.start("/v1/new")

        served = [await one, await two]

        assert sorted(response.outcome for response in served) == ["recorded", "replayed"]
        assert len(running.responder.asked) == 1


async def test_a_mode_that_does_not_replay_gives_no_recording_out() -> None:
    async with running_broker("record", store=await tape(*LOOP)) as running:
        await running.broker.prepare()
        before = running.held()
        found = await ask(running, turn("weather?", ("my_1", "sun"), ("my_2", "snow")))

        assert found.outcome == "recorded"
        assert running.held() == [*before, found.body]
