"""Rules of the settings and of cassettes: in force at once, and written where they hold."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tapeway.core.json_text import Json
from tapeway.core.matching.rules import Rules, merged_rules, removing
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.engine.recording.selection import Policy
from tapeway.errors import CassetteCorrupt, StoreFull
from tests.support.fakes.broker import recorded, running_broker
from tests.support.fakes.failing_store import FakeStore
from tests.support.fakes.live_service import FakeAnswer
from tests.support.reuse import REUSED

IGNORE_TS = Rules(ignore=("query.ts",))
IGNORE_N = Rules(ignore=("query.n",))


async def ruled(store: FakeStore, rules: dict[str, Json]) -> FakeStore:
    found = await store.load("default", writable=False)
    assert found is not None
    head = replace(found.head, meta={"rules": rules, "kept": 1})
    await store.save("default", replace(found, head=head))
    store.calls.clear()
    return store


async def meta(store: FakeStore) -> Mapping[str, Json]:
    found = await store.load("default", writable=False)
    assert found is not None
    return found.head.meta


async def test_rules_of_the_settings_hold_when_recording_and_when_replaying() -> None:
    async with running_broker("auto", rules=merged_rules(IGNORE_TS, REUSED)) as running:
        outcomes = [(await running.get(f"/v1/x?ts={n}&n={n // 2}")).outcome for n in range(4)]

        assert outcomes == ["recorded", "replayed", "recorded", "replayed"]


async def test_a_new_cassette_states_the_rules_it_was_made_with() -> None:
    async with running_broker("auto", rules=IGNORE_TS) as running:
        await running.get("/v1/x?ts=1")
        store = running.store

    assert (await meta(store))["rules"] == {"ignore": ["query.ts"]}
    async with running_broker("replay", store=store) as running:
        assert (await running.get("/v1/x?ts=2")).outcome == "replayed"


async def test_rules_of_a_cassette_and_of_the_settings_hold_together() -> None:
    store = await ruled(await recorded("a", path="/v1/x?n=1&ts=1"), {"ignore": ["query.n"]})

    async with running_broker("replay", store=store, rules=IGNORE_TS) as running:
        assert (await running.get("/v1/x?n=2&ts=2")).outcome == "replayed"

    assert await meta(store) == {"rules": {"ignore": ["query.n"]}, "kept": 1}


async def test_what_is_loaded_for_recording_gets_the_rules_it_lacks_once() -> None:
    store = await ruled(await recorded("a", path="/v1/x?n=1"), {"ignore": ["query.n"]})

    async with running_broker("auto", store=store, rules=IGNORE_TS) as running:
        await running.get("/v1/x?n=2&ts=2")
        assert await meta(store) == {"rules": {"ignore": ["query.n", "query.ts"]}, "kept": 1}
    async with running_broker("auto", store=store, rules=IGNORE_TS) as running:
        await running.get()

    assert store.calls.count("save default") == 1


async def test_what_was_loaded_for_replay_gets_them_when_it_is_recorded_on() -> None:
    store = await recorded("a", path="/v1/x?n=1")

    async with running_broker("replay", store=store, rules=IGNORE_N) as running:
        await running.get("/v1/x?n=2")
        assert store.calls.count("save default") == 0
        await running.broker.set_mode("auto")
        assert (await running.get("/v1/other")).outcome == "recorded"
        assert await meta(store) == {"rules": {"ignore": ["query.n"]}}

    assert len(await running.stored()) == 2


async def test_an_accepted_rule_holds_at_once_and_is_kept() -> None:
    store = await recorded("a", "b", path="/v1/x?ts=1")
    async with running_broker("replay", policy=Policy(repeats="miss"), store=store) as running:
        assert (await running.get("/v1/x?ts=1")).body == b"a"
        assert (await running.get("/v1/x?ts=2")).outcome == "miss"

        await running.broker.add_rules("default", IGNORE_TS)

        assert (await running.get("/v1/x?ts=2")).body == b"b"
        assert (await running.get("/v1/x?ts=3")).outcome == "miss"
        assert (await meta(store))["rules"] == {"ignore": ["query.ts"]}


async def test_a_removed_rule_ends_at_once_and_is_not_kept() -> None:
    store = await recorded("a", path="/v1/x?ts=1")
    async with running_broker("replay", store=store) as running:
        await running.broker.add_rules("default", IGNORE_TS)
        await running.broker.add_rules("default", Rules(ignore=("query.n",), match=("x-a",)))
        assert (await running.get("/v1/x?ts=2&n=1")).outcome == "replayed"

        left = await running.broker.change_rules("default", removing(IGNORE_TS))

        assert left == Rules(ignore=("query.n",), match=("x-a",))
        assert (await running.get("/v1/x?ts=2")).outcome == "miss"
        assert (await running.get("/v1/x?ts=1&n=1")).outcome == "replayed"
        assert (await meta(store))["rules"] == {"ignore": ["query.n"], "match": ["x-a"]}


async def test_recordings_that_become_equal_are_repeats_of_one_another() -> None:
    async with running_broker("auto", policy=Policy(repeats="miss")) as running:
        for n in (1, 2, 3):
            await running.get(f"/v1/x?ts={n}")
        await running.broker.set_mode("replay")
        await running.get("/v1/x?ts=2")

        await running.broker.add_rules("default", IGNORE_TS)

        left = [(await running.get("/v1/x?ts=9")).body for _ in range(3)]
        assert left[:2] == [b"answer 1", b"answer 3"]
        assert left[2].startswith(b"replay miss")


async def test_a_rule_is_kept_at_once_also_where_that_changes_numbers() -> None:
    store = await recorded("old", path="/v1/x?ts=1")
    async with running_broker("record", store=store) as running:
        await running.get("/v1/x?ts=1")
        await running.broker.add_rules("default", IGNORE_TS)
        assert (await meta(store))["rules"] == {"ignore": ["query.ts"]}
        assert (await running.get("/v1/x?ts=2")).index == 1
        await running.broker.rewind()
        assert (await running.get("/v1/x?ts=3")).outcome == "recorded"

        assert await running.stored() == running.held() == [b"answer 3"]


async def test_a_request_that_comes_while_a_rule_is_put_in_force_waits_for_it() -> None:
    store = await recorded("a", path="/v1/x?ts=1")
    async with running_broker("replay", store=store) as running:
        await running.get("/v1/x?ts=1")
        gate = store.shut("save")
        async with asyncio.TaskGroup() as group:
            group.create_task(running.broker.add_rules("default", IGNORE_TS))
            await store.reached("save default")
            asking = running.start("/v1/x?ts=2")
            await asyncio.sleep(0)
            await running.broker.set_mode("auto")
            gate.set()

        assert (await asking).outcome == "replayed"
        loaded = running.broker.cassette("default")
        assert loaded is not None
        assert loaded.take.number == running.broker.takes


async def test_rules_are_kept_when_the_process_stops() -> None:
    store = await recorded("old", path="/v1/x?ts=1")
    async with running_broker("record", store=store) as running:
        await running.get("/v1/x?ts=1")
        await running.broker.add_rules("default", IGNORE_TS)

    assert (await meta(store))["rules"] == {"ignore": ["query.ts"]}


async def test_rules_for_a_cassette_without_recordings_are_written_with_its_first() -> None:
    async with running_broker("auto") as running:
        await running.broker.add_rules("default", IGNORE_TS)
        assert await running.store.names() == []
        await running.get("/v1/x?ts=1")

        assert await meta(running.store) == {"rules": {"ignore": ["query.ts"]}}


async def test_rules_that_cannot_be_read_stop_the_loading_with_their_place() -> None:
    store = FakeStore()
    head = CassetteHead("", "run-1", {"rules": {"ignore": ["body..a"]}})
    await store.save("default", StoredCassette(head))

    async with running_broker("replay", store=store) as running:
        with pytest.raises(CassetteCorrupt, match=r"'default': meta\.rules\.ignore\[0\]: 'body"):
            await running.get()


async def test_a_digest_login_replays_though_every_nonce_is_another() -> None:
    def login(nonce: bytes) -> tuple[tuple[bytes, bytes], ...]:
        return ((b"authorization", b'Digest username="me", nonce="%b"' % nonce),)

    async with running_broker("record") as running:
        for headers in ((), login(b"1"), (), login(b"2")):
            await running.get("/v1/me", headers=headers)
        await running.broker.set_mode("replay")

        found = [
            (await running.get("/v1/me", headers=headers)).body
            for headers in (login(b"7"), (), login(b"8"), (), ())
        ]

        assert found == [b"answer 2", b"answer 1", b"answer 4", b"answer 3", b"answer 3"]


async def test_what_is_renumbered_by_saving_is_replaced_by_its_new_number() -> None:
    store = await recorded("old", path="/v1/x?ts=1")
    async with running_broker("record", store=store) as running:
        await running.get("/v1/x?ts=1")
    async with running_broker("record", store=store, rules=IGNORE_TS) as running:
        running.responder.reply = lambda _: FakeAnswer(b"newest")
        await running.get("/v1/x?ts=2")

        assert await running.stored() == [b"newest"]


@pytest.mark.parametrize(("seconds", "saved"), [(5.0, 1), (0.0, 0)])
async def test_the_day_of_a_check_is_written_at_the_end_if_there_is_time(
    seconds: float, saved: int
) -> None:
    store = await recorded("answer 1")
    async with running_broker("record", store=store) as running:
        assert (await running.get()).outcome == "recorded"
        running.broker.close_within(seconds)

    assert store.calls.count("save default") == saved
    assert store.calls.count("append default") == 1


async def test_a_day_that_cannot_be_written_is_told_and_nothing_else_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = await recorded("answer 1")
    async with running_broker("record", store=store) as running:
        await running.get()
        store.fail("save", StoreFull("the disk is full"))
        report = await running.broker.eject()

    assert report.recorded == 1
    assert "does not show when it was last checked: the disk is full" in caplog.text
