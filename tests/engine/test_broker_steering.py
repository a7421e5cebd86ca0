"""Modes, takes, insert, rewind and eject: exact, and never in the middle of a request."""

import asyncio

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.engine.recording.selection import Policy
from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteLocked,
    StoreError,
    StoreFull,
    TapewayError,
)
from tests.support.fakes.broker import ServedAnswer, recorded, running_broker
from tests.support.fakes.failing_store import FakeStore
from tests.support.reuse import REUSED


@pytest.mark.parametrize(
    ("first", "then", "held"),
    [
        ("auto", "replay", [b"answer 1"]),
        ("auto", "passthrough", [b"answer 1"]),
        ("record", "replay", [b"answer 1"]),
        ("passthrough", "record", []),
    ],
)
async def test_a_request_is_served_to_its_end_in_the_mode_it_came_in(
    first: Mode, then: Mode, held: list[bytes]
) -> None:
    async with running_broker(first) as running:
        running.responder.gate.clear()
        client = running.start()
        await running.responder.reached(1)
        await running.broker.set_mode(then)
        running.responder.gate.set()

        assert (await client).outcome == ("live" if first == "passthrough" else "recorded")
        assert running.held() == held


async def test_a_cassette_may_have_a_mode_of_its_own() -> None:
    async with running_broker("replay", rules=REUSED) as running:
        await running.broker.set_mode("auto", "mine")

        assert (await running.get(cassette="mine")).outcome == "recorded"
        assert (await running.get()).outcome == "miss"
        assert (running.broker.mode_of("mine"), running.broker.mode_of("other")) == (
            "auto",
            "replay",
        )

        await running.broker.set_mode("passthrough")

        assert (await running.get(cassette="mine")).outcome == "replayed"
        assert (await running.get()).outcome == "live"


async def test_inserting_makes_a_cassette_the_active_one_in_a_new_take() -> None:
    store = await recorded("old")
    async with running_broker("replay", policy=Policy(repeats="miss"), store=store) as running:
        await running.get()
        takes = running.broker.takes
        await running.broker.insert("fresh")

        assert (running.broker.active, running.broker.takes) == ("fresh", takes + 1)
        assert (await running.get()).outcome == "miss"
        await running.broker.insert("default")
        assert await running.get() == ServedAnswer("replayed", b"old", 0)


async def test_inserting_to_record_claims_the_cassette_before_it_answers() -> None:
    async with running_broker("replay") as running:
        await running.broker.insert("fresh", "record")

        assert running.store.claimed == {"fresh": True}


@pytest.mark.parametrize("error", [CassetteCorrupt("line 3"), CassetteLocked("process 7")])
async def test_a_cassette_that_cannot_be_inserted_changes_nothing(error: StoreError) -> None:
    async with running_broker("replay", store=await recorded("old")) as running:
        running.store.fail("load", error)
        takes = running.broker.takes

        with pytest.raises(type(error), match=error.message):
            await running.broker.insert("other", "record")
        assert (running.broker.active, running.broker.mode) == ("default", "replay")
        assert running.broker.takes == takes
        assert (await running.get()).outcome == "replayed"


async def test_a_cassette_is_loaded_once_however_many_ask_for_it() -> None:
    async with running_broker("replay", store=await recorded("old")) as running:
        gate = running.store.shut("load")
        clients = [running.start() for _ in range(10)]
        await running.store.reached("load default")
        gate.set()

        assert {(await client).outcome for client in clients} == {"replayed"}
        assert running.store.calls.count("load default") == 1


async def test_a_cassette_that_could_not_be_loaded_is_tried_again() -> None:
    async with running_broker("replay", store=await recorded("old")) as running:
        running.store.fail("load", CassetteCorrupt("line 3"))

        with pytest.raises(CassetteCorrupt):
            await running.get()
        assert (await running.get()).outcome == "replayed"


@pytest.mark.parametrize(
    ("mode", "writable"),
    [("replay", False), ("passthrough", False), ("auto", True), ("record", True)],
)
async def test_only_what_will_be_recorded_on_is_claimed(mode: Mode, writable: bool) -> None:
    async with running_broker(mode) as running:
        await running.get()

        assert running.store.claimed == {"default": writable}


@pytest.mark.parametrize("error", [CassetteLocked("process 7"), CassetteEdited("edited")])
async def test_nobody_is_asked_for_what_could_not_be_recorded(error: StoreError) -> None:
    async with running_broker("replay", store=await recorded("old")) as running:
        await running.get()
        await running.broker.set_mode("record")
        running.store.fail("load", error)

        with pytest.raises(type(error), match=error.message):
            await running.get()
        assert running.responder.connections == 0
        assert running.held() == [b"old"]
        assert [(await running.get()).outcome for _ in range(2)] == ["recorded"] * 2
        assert running.store.claimed == {"default": True}
        assert running.store.calls.count("load default") == 3


async def test_a_mode_that_only_asks_claims_nothing() -> None:
    async with running_broker("replay", store=await recorded("old")) as running:
        await running.get()
        await running.broker.set_mode("auto")
        assert (await running.get()).outcome == "replayed"
        await running.broker.set_mode("passthrough")
        assert (await running.get()).outcome == "live"

        assert running.store.claimed == {"default": False}


# Eject.


async def test_ejecting_reports_and_unloads_and_the_next_request_loads_anew() -> None:
    async with running_broker(store=await recorded("old", path="/old")) as running:
        await running.get()
        takes = running.broker.takes
        report = await running.broker.eject()

        assert (report.name, report.recorded, report.replayed) == ("default", 1, 0)
        assert [item.path for item in report.unused] == ["/old"]
        assert running.store.calls[-1] == "release default"
        assert running.broker.cassette(None) is None
        assert running.broker.takes == takes + 1
        assert (await running.get()).outcome == "replayed"
        assert running.store.calls.count("load default") == 2


async def test_ejecting_waits_for_recordings_in_flight_and_reports_them() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        clients = [running.start("/a"), running.start("/b"), running.start("/b")]
        await running.responder.reached(2)
        ejecting = asyncio.get_running_loop().create_task(running.broker.eject())
        await asyncio.sleep(0)
        gate = running.store.shut("append")
        running.responder.gate.set()
        await running.store.reached("append default", 2)

        assert not ejecting.done()
        gate.set()
        report = await ejecting
        assert (report.recorded, report.replayed, report.unused) == (2, 1, ())
        assert [(await client).body for client in clients[:2]] == [b"answer 1", b"answer 2"]
        assert running.store.calls[-1] == "release default"


async def test_a_request_that_comes_during_eject_loads_anew() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        first = running.start("/a")
        await running.responder.reached(1)
        ejecting = asyncio.get_running_loop().create_task(running.broker.eject())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = running.start("/a")
        elsewhere = running.start("/a", cassette="other")
        running.responder.gate.set()

        assert (await elsewhere).outcome == "recorded"
        assert (await first).outcome == "recorded"
        assert (await ejecting).recorded == 1
        assert await second == ServedAnswer("replayed", b"answer 1", 0)
        assert running.store.calls.count("load default") == 2


async def test_ejecting_goes_on_when_the_caller_has_left() -> None:
    async with running_broker() as running:
        running.responder.gate.clear()
        client = running.start()
        await running.responder.reached(1)
        ejecting = asyncio.get_running_loop().create_task(running.broker.eject())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ejecting.cancel()
        await asyncio.gather(ejecting, return_exceptions=True)
        running.responder.gate.set()
        await client

        # Half ejected, it would have given out the same index twice from here on.
        assert (await running.get("/other")).index == 1
        assert running.store.calls.count("release default") == 1
        assert await running.stored() == [b"answer 1", b"answer 2"]


async def test_pruning_drops_what_this_take_did_not_touch_and_nothing_else() -> None:
    store = FakeStore()
    foreign = ForeignInteraction(0, {"kind": "tool", "response": None})
    old = await (await recorded("1", "2")).load("default", writable=False)
    assert old is not None
    kept = StoredCassette(CassetteHead("", "run-1"), (foreign, *old.interactions))
    await store.save("default", kept)
    async with running_broker(store=store) as running:
        await running.get("/new")
        await running.get()
        report = await running.broker.eject(prune=True)

        assert len(report.unused) == 1
        assert await running.stored() == [b"1", b"answer 1"]
        left = await store.load("default", writable=False)
        assert left is not None
        assert len(left.interactions) == 3


async def test_pruning_what_was_all_used_writes_nothing_anew() -> None:
    async with running_broker(store=await recorded("old")) as running:
        await running.get()
        await running.broker.eject(prune=True)

        assert "save default" not in running.store.calls


async def test_a_cassette_that_cannot_be_pruned_stays_loaded_unchanged() -> None:
    async with running_broker(store=await recorded("old")) as running:
        await running.get("/new")
        running.store.fail("save", CassetteEdited("somebody else wrote it"))

        with pytest.raises(CassetteEdited):
            await running.broker.eject(prune=True)
        assert running.held() == [b"old", b"answer 1"]
        assert "release default" not in running.store.calls
        assert (await running.broker.eject()).recorded == 1


async def test_what_cannot_be_released_is_loaded_anew_from_what_the_store_has() -> None:
    async with running_broker() as running:
        await running.get()
        running.store.fail("release", StoreFull("disk is full"))

        with pytest.raises(StoreFull):
            await running.broker.eject()
        assert running.broker.cassette(None) is None
        assert (await running.get()).outcome == "replayed"


async def test_a_fault_while_ejecting_ends_nothing_else() -> None:
    async with running_broker() as running:
        await running.get()
        running.store.fail("release", LookupError("sk-SECRET"))  # type: ignore[arg-type]

        with pytest.raises(TapewayError, match="unexpected error: see its log"):
            await running.broker.eject()
        assert (await running.get("/new")).outcome == "recorded"


async def test_reports_cover_the_loaded_cassettes() -> None:
    async with running_broker() as running:
        await running.get()
        await running.get(cassette="other")
        await running.broker.eject("other")

        assert [report.name for report in await running.broker.reports()] == ["default"]
        assert [cassette.name for cassette in await running.broker.source.counts()] == ["default"]


async def test_reading_a_cassette_does_not_load_it() -> None:
    async with running_broker(store=await recorded("old")) as running:
        found = await running.broker.source.read("default")

        assert found is not None
        assert len(found.interactions) == 1
        assert await running.broker.source.counts() == []
        assert await running.broker.source.read("nobody") is None


async def test_reading_a_loaded_cassette_shows_its_present_content() -> None:
    async with running_broker() as running:
        await running.get()
        found = await running.broker.source.read("default")

        assert found is not None
        assert len(found.interactions) == 1
        assert running.broker.cassette(None) is not None
