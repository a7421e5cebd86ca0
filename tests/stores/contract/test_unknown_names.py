"""Requests that name cassettes nobody has: what is known of those is bounded."""

import asyncio
from collections import Counter, deque
from gc import get_referents
from types import FunctionType, ModuleType

import pytest

from tapeway.core.matching import request_redaction
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.engine import journal
from tapeway.engine.broker import Broker
from tapeway.engine.editing.changes import Addition
from tests.stores.contract.kinds import Place
from tests.stores.recordings import recording
from tests.support.fakes.broker_setups import Sent, brokers_on
from tests.support.fakes.live_service import FakeAnswer, numbered
from tests.support.reuse import REUSED

MOST = 5
ASKED = Request("openai", "GET", "/v1/x", base="https://up")


@pytest.mark.parametrize("mode", ["replay", "auto"])
async def test_names_that_hold_nothing_are_forgotten(
    mode: Mode, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_EMPTY", MOST)
    # In auto it is not recorded.
    refused = FakeAnswer(b"no", status=503)
    setups = brokers_on([place.again()], lambda _: refused, mode=mode, repeats=None, rules=REUSED)
    async with setups as setup:
        (broker,) = setup.brokers
        await broker.editor.append("held", [Addition(recording(0).interaction)])
        await setup.ask(0, Sent(recording(0).exchange.request, "held"))
        await setup.ask(0, Sent(ASKED))

        for number in range(3 * MOST):
            await setup.ask(0, Sent(ASKED, f"c{number}"))
            assert len(broker.journal.tallies) <= MOST + 3

        names = {count.name for count in await broker.source.counts()}
        assert names == {"default", "held", *[f"c{at}" for at in range(2 * MOST, 3 * MOST)]}
        assert sum(broker.journal.counts.values()) == 3 * MOST + 2
        again = await setup.ask(0, Sent(recording(0).exchange.request, "held"))
        assert again[:2] == ("replayed", recording(0).exchange.response.body)
        # One that was forgotten is found as soon as somebody records it.
        await broker.editor.append("c0", [Addition(recording(1).interaction)])
        found = await setup.ask(0, Sent(recording(1).exchange.request, "c0"))
        assert found[:2] == ("replayed", recording(1).exchange.response.body)


async def test_a_name_under_which_a_call_is_under_way_is_not_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_EMPTY", MOST)
    setups = brokers_on([place.again()], numbered, mode="auto", repeats=None, rules=REUSED)
    async with setups as setup:
        (broker,) = setup.brokers
        setup.responder.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(setup.ask(0, Sent(ASKED, "first")))
            await setup.responder.reached(1)
            for number in range(2 * MOST):
                await broker.prepare(f"c{number}")
            setup.responder.gate.set()

        assert first.result()[0] == "recorded"
        assert (await setup.ask(0, Sent(ASKED, "first")))[0] == "replayed"


def state_of(broker: Broker) -> int:
    """How many entries the containers have that the broker and its store keep."""
    seen: set[int] = set()
    waiting: list[object] = [broker]
    entries = 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type | ModuleType | FunctionType | Counter):
            continue
        seen.add(id(value))
        if isinstance(value, dict | set | list | deque):
            entries += len(value)
        if isinstance(value, dict | set | list | tuple | deque) or (
            type(value).__module__.startswith("tapeway.")
        ):
            waiting += get_referents(value)
    return entries


async def test_names_that_hold_nothing_leave_no_entry_anywhere(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_EMPTY", MOST)
    monkeypatch.setattr(journal, "MAX_NAMED", MOST)
    monkeypatch.setattr(request_redaction, "MOST_CASSETTES", MOST)
    async with brokers_on([place.again()], numbered, mode="replay", repeats=None) as setup:
        (broker,) = setup.brokers
        counts: list[int] = []
        for number in range(8 * MOST):
            await setup.ask(0, Sent(ASKED, f"c{number}"))
            if number in (3 * MOST, 8 * MOST - 1):
                counts.append(state_of(broker))

        # Of a name that was left somewhere, one entry each.
        assert counts[1] - counts[0] < 2 * MOST
