"""Calls under way among several processes: who makes them, waits for them, and records."""

import asyncio

import pytest

from tapeway.core.cassette.plan import Incoming, LiveCall
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import AdminError, Draining, Fenced, StoreAway, UpstreamError
from tests.support.fakes.shared_brokers import shared_brokers, start, together


async def test_a_fenced_out_owner_answers_with_what_was_stored() -> None:
    async with shared_brokers() as found:
        one, other = found.instances
        found.responder.gate.clear()
        late = start(one.get)
        await found.responder.reached(1)
        ((name, key), _) = next(iter(found.common.leases.items()))
        found.common.leases.clear()
        found.common.changed.set()
        taken_over = start(other.get)
        await found.responder.reached(2)
        assert (name, key) in found.common.leases
        # The new owner is answered first.
        found.responder.gate.set()
        answers = await together(late, taken_over)

        assert len(found.stored()) == 1
        assert {answer.body for answer in answers} == set(found.stored())


async def test_a_failed_call_leaves_the_next_instance_to_ask() -> None:
    async with shared_brokers() as found:
        one, other = found.instances
        found.responder.gate.clear()
        found.responder.refuse(UpstreamError("down"))
        first = start(one.get)
        await found.responder.reached(1)
        second = start(other.get)
        found.responder.gate.set()
        with pytest.raises(UpstreamError):
            await first
        with pytest.raises(UpstreamError):
            await second

        assert found.common.leases == {}
        assert found.stored() == []


@pytest.mark.parametrize("mode", ["record", "auto"])
async def test_an_eject_waits_for_what_another_instance_still_records(mode: Mode) -> None:
    async with shared_brokers(mode) as found, asyncio.TaskGroup() as tasks:
        one, other = found.instances
        await one.get("/first")
        found.responder.gate.clear()
        late = tasks.create_task(other.get("/late"))
        await found.responder.reached(2)
        ejecting = tasks.create_task(one.broker.eject())
        # It has seen the one that is under way, and looks again and again whether it still is.
        await one.store.looked(3)
        first_gate, found.responder.gate = found.responder.gate, asyncio.Event()
        # What begins meanwhile is not waited for.
        later = tasks.create_task(other.get("/later"))
        await found.responder.reached(3)
        assert not ejecting.done()
        first_gate.set()
        report = await ejecting

        assert (await late).outcome == "recorded"
        assert not later.done()
        assert not report.unused
        assert b"answer 2" in found.stored()
        found.responder.gate.set()
        await later
        assert found.common.leases == {}


async def test_any_instance_ejects_what_another_one_used() -> None:
    async with shared_brokers("record", count=3) as found:
        one, other, third = found.instances
        await one.get("/a")

        report = await other.broker.eject()

        assert (report.name, report.recorded, list(report.unused)) == ("default", 0, [])
        with pytest.raises(AdminError):
            await third.broker.eject()
        found.responder.gate.clear()
        late = start(one.get)
        await found.responder.reached(2)
        ejecting = start(third.broker.eject)
        await third.store.looked(2)
        found.responder.gate.set()
        await together(late, ejecting)


async def test_an_eject_is_aborted_when_its_instance_stops() -> None:
    async with shared_brokers("record") as found, asyncio.TaskGroup() as tasks:
        one, other = found.instances
        await one.get("/first")
        found.responder.gate.clear()
        late = tasks.create_task(other.get())
        await found.responder.reached(2)

        async def refused() -> None:
            with pytest.raises(Draining):
                await one.broker.eject()

        ejecting = tasks.create_task(refused())
        await one.store.looked(2)
        one.broker.drain()
        await ejecting
        found.responder.gate.set()

        assert (await late).outcome == "recorded"


async def test_an_owner_that_is_fenced_out_hears_what_is_in_force_and_gets_the_others_answer() -> (
    None
):
    async with shared_brokers() as found, asyncio.TaskGroup() as tasks:
        one, other = found.instances
        found.responder.gate.clear()
        late = tasks.create_task(one.get())
        await found.responder.reached(1)
        found.common.leases.clear()
        taken_over = tasks.create_task(other.get())
        await found.responder.reached(2)
        await other.broker.set_mode("replay")
        found.responder.gate.set()
        stored = await taken_over

        assert (await late).body == stored.body
        assert one.broker.mode == "replay"


async def test_an_answer_that_was_paid_for_and_cannot_be_kept_is_told_from_one_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreAway("the database is away")

    async with shared_brokers() as found:
        one = found.instances[0]
        monkeypatch.setattr(one.store, "append", away)
        with pytest.raises(StoreAway) as lost:
            await one.get()
        monkeypatch.setattr(one.store, "claim", away)
        with pytest.raises(StoreAway) as not_asked:
            await one.get()

        assert (lost.value.status, lost.value.code) == (503, "recording_failed")
        assert lost.value.message.endswith("the live answer was not given out and is lost")
        assert (not_asked.value.status, not_asked.value.code) == (503, "store_unreachable")
        assert len(found.responder.asked) == 1


async def test_a_recording_of_its_own_is_not_lost_with_its_lease() -> None:
    async with shared_brokers("record") as found:
        one = found.instances[0]
        found.responder.gate.clear()
        late = start(one.get)
        await found.responder.reached(1)
        assert len(found.common.leases) == 1
        # As when it was stopped for long.
        found.common.leases.clear()
        found.responder.gate.set()

        assert (await late).outcome == "recorded"
        assert found.stored() == [b"answer 1"]


async def test_a_stream_that_began_is_aborted_when_its_owner_is_fenced_out() -> None:
    async with shared_brokers() as found:
        one = found.instances[0]
        asked = Request("openai", "GET", "/v1/x", base="https://up")
        plan = await one.broker.decide("default", Incoming(asked))
        assert isinstance(plan, LiveCall)
        found.responder.gate.clear()
        feed = ResponseReader()
        pending = one.broker.recorder.follow(plan, feed)
        await found.responder.reached(1)
        one.store.steal(plan.flight)
        found.responder.gate.set()

        assert await feed.head() is not None
        with pytest.raises(Fenced):
            await pending.answer()
        assert found.stored() == []
