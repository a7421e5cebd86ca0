"""Cassettes that several processes share, each asking the store for what a request needs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tapeway.core.cassette.plan import Incoming, LiveCall
from tapeway.core.matching import received_request
from tapeway.core.matching.key import KeyAndBody, key_and_body
from tapeway.core.matching.rules import Rules, removing
from tapeway.core.model.cassette import (
    CassetteHead,
    Lease,
    LogPage,
    Recording,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.control import CursorMove
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.engine.cassettes import cassettes, followed, followed_index
from tapeway.errors import AdminError, CassetteCorrupt, StoreAway
from tapeway.ports import MoveDone
from tests.support.fakes.broker import ServedAnswer, until
from tests.support.fakes.live_service import FakeAnswer
from tests.support.fakes.shared_brokers import JSON, shared_brokers, start, together
from tests.support.fakes.store_instances import Common
from tests.support.reuse import REUSED


async def test_what_one_instance_recorded_the_other_replays() -> None:
    async with shared_brokers(rules=REUSED) as found:
        one, other = found.instances

        assert await one.get() == ServedAnswer("recorded", b"answer 1", 0)
        assert await other.get() == ServedAnswer("replayed", b"answer 1", 0)
        assert len(found.responder.asked) == 1


async def test_equal_misses_on_all_instances_make_one_call() -> None:
    async with shared_brokers(count=4) as found:
        found.responder.gate.clear()
        works = [start(instance.get) for instance in found.instances for _ in range(25)]
        await found.responder.reached(1)
        found.responder.gate.set()

        answers = await together(*works)

        assert len(found.responder.asked) == 1
        assert {answer.body for answer in answers} == {b"answer 1"}
        assert [answer.outcome for answer in answers].count("recorded") == 1
        assert found.common.leases == {}


async def test_a_lost_race_is_run_again_from_what_the_store_says_then() -> None:
    async with shared_brokers("record", repeats="miss") as found:
        one, other = found.instances
        for _ in range(3):
            await one.get()
        await one.broker.set_mode("replay")
        seen: list[ServedAnswer] = []
        advance = one.store.advance

        async def after_the_other(move: CursorMove, done: MoveDone) -> None:
            seen.append(await other.get())
            advance(move, done)

        async with asyncio.TaskGroup() as tasks:

            def slow(move: CursorMove, done: MoveDone) -> None:
                one.store.advance = advance  # type: ignore[method-assign]  # once
                tasks.create_task(after_the_other(move, done))

            one.store.advance = slow  # type: ignore[method-assign]  # the other is quicker
            mine = await one.get()

        assert [recording.index for recording in (*seen, mine)] == [0, 1]
        assert one.store.lost == 1


async def test_no_instance_replaces_a_recording_while_more_of_its_answer_is_written() -> None:
    async with shared_brokers("record") as found:
        one, other = found.instances
        await one.get()
        asked = Incoming(Request("openai", "GET", "/v1/x", base="https://up"))
        live_call = await one.broker.decide("default", asked)
        assert isinstance(live_call, LiveCall)
        await other.broker.rewind()
        claim, held_by_others = other.store.claim, list[bytes]()

        async def follow(name: str, key: bytes, *, wait: bool = False) -> Lease | None:
            if (name, key) in found.common.leases:
                held_by_others.append(key)
            return await claim(name, key, wait=wait)

        other.store.claim = follow  # type: ignore[method-assign]  # tells of a refusal
        async with one.broker.source.going_on(live_call, 0):
            replacing = start(other.get)
            await until(lambda: held_by_others or replacing.done())
            assert not replacing.done()
            assert found.stored() == [b"answer 1"]
        await together(replacing)

        assert found.stored() == [b"answer 2"]


async def test_a_mode_is_in_force_on_all_instances() -> None:
    async with shared_brokers() as found:
        one, other = found.instances
        await one.get()

        await one.broker.set_mode("replay")
        await other.broker.confirm()

        assert (other.broker.mode, other.broker.takes) == ("replay", 2)
        assert (await other.get("/v1/other")).outcome == "miss"
        assert (await other.get()).outcome == "replayed"


async def test_an_instance_that_lost_the_store_refuses() -> None:
    async with shared_brokers() as found:
        one = found.instances[0]
        await one.get()
        one.store.in_touch = False

        for path in ("/v1/x", "/v1/new"):
            with pytest.raises(StoreAway, match="fake:"):
                await one.get(path)
        assert len(found.responder.asked) == 1


async def test_an_instance_that_lost_the_store_does_not_even_relay() -> None:
    async with shared_brokers("passthrough") as found:
        found.instances[0].store.in_touch = False

        with pytest.raises(StoreAway):
            await found.instances[0].get()


async def test_rules_added_on_one_instance_are_in_force_on_the_other() -> None:
    async with shared_brokers() as found:
        one, other = found.instances
        await one.get("/v1/x?ts=1")
        assert (await other.get("/v1/x?ts=2")).outcome == "recorded"

        await one.broker.add_rules("default", Rules(ignore=("query.ts",)))

        assert (await other.get("/v1/x?ts=3")).outcome == "replayed"
        assert found.common.heads["default"].meta["rules"] == {"ignore": ["query.ts"]}


async def test_a_rule_removed_on_one_instance_is_gone_on_the_other() -> None:
    async with shared_brokers() as found:
        one, other = found.instances
        await one.get("/v1/x?ts=1")
        rules = Rules(ignore=("query.ts",))
        await one.broker.add_rules("default", rules)
        assert (await other.get("/v1/x?ts=2")).outcome == "replayed"

        assert await other.broker.change_rules("default", removing(rules)) == Rules()

        assert (await one.get("/v1/x?ts=3")).outcome == "recorded"
        assert found.common.heads["default"].meta["rules"] == {}


async def test_rules_of_the_settings_are_put_into_a_cassette_that_lacks_them() -> None:
    common = Common()
    async with shared_brokers(count=1, common=common) as found:
        await found.instances[0].get("/v1/x?ts=1")
    common.instances.clear()

    async with shared_brokers(count=1, common=common, rules=Rules(ignore=("query.ts",))) as found:
        assert (await found.instances[0].get("/v1/x?ts=2")).outcome == "replayed"


async def test_a_report_counts_what_all_have_touched() -> None:
    async with shared_brokers("record") as found:
        one, other = found.instances
        for path in ("/a", "/b", "/c"):
            await one.get(path)
        await one.broker.set_mode("replay")
        await one.get("/a")
        await other.get("/b")

        (report,) = await one.broker.reports()
        (listed,) = await one.broker.source.counts()

        assert [recording.path for recording in report.unused] == ["/c"]
        assert (report.recorded, report.replayed) == (3, 1)
        assert (listed.interactions, listed.unused) == (3, 1)


async def test_an_eject_prunes_what_no_instance_touched_and_begins_a_take() -> None:
    async with shared_brokers("record") as found:
        one, other = found.instances
        for path in ("/a", "/b", "/c"):
            await one.get(path)
        await one.broker.set_mode("replay")
        await other.get("/b")
        takes = one.broker.takes

        report = await one.broker.eject(prune=True)

        assert [recording.path for recording in report.unused] == ["/a", "/c"]
        assert [exchange.request.target for exchange in found.common.held["default"]] == ["/b"]  # type: ignore[union-attr]  # exchanges
        await other.broker.confirm()
        assert other.broker.takes == takes + 1
        with pytest.raises(AdminError):
            await one.broker.eject()


async def test_names_that_hold_nothing_leave_no_takes_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed, "MOST_EMPTY", 20)
    async with shared_brokers("record") as found:
        one, other = found.instances
        await one.get()
        await one.broker.eject()
        own = one.broker.source.control.take_of("default")
        for number in range(100):
            await (one, other)[number % 2].broker.rewind(f"made-up-{number}")
        control = other.broker.source.control

        assert len(control.cassette_takes) <= 20
        assert control.cassette_takes["default"] == own
        assert control.cassette_takes["made-up-99"] == control.takes


async def test_a_conversation_with_renamed_identifiers_is_recognised_on_any_instance() -> None:
    call = b'{"choices":[{"message":{"tool_calls":[{"id":"call_9f8e7d6c5b4a3210"}]}}]}'
    turn = (
        b'{"messages":[{"role":"assistant","tool_calls":[{"id":"%b","type":"function"}]},'
        b'{"role":"tool","tool_call_id":"%b","content":"twelve"}]}'
    )
    async with shared_brokers("record") as found:
        one, other = found.instances
        found.responder.reply = lambda _: FakeAnswer(call, headers=JSON)
        await one.post(b'{"messages":[{"role":"user","content":"add"}]}')
        await one.post(turn % ((b"call_9f8e7d6c5b4a3210",) * 2))
        await one.broker.set_mode("replay")

        assert (await other.post(turn % ((b"call_0123456789abcdef",) * 2))).outcome == "replayed"
        assert (await one.post(turn % (b"call_0123456789abcdef", b"call_x"))).outcome == "miss"
        assert one.store.calls["near"] == other.store.calls["near"] == 0


async def test_an_identifier_that_an_earlier_take_issued_is_flagged_on_any_instance() -> None:
    issued = "call_9f8e7d6c5b4a3210"
    body = b'{"messages":[{"role":"tool","tool_call_id":"%b","content":"x"}]}' % issued.encode()
    async with shared_brokers("record") as found:
        one, other = found.instances
        found.responder.reply = lambda _: FakeAnswer(b'{"id":"%b"}' % issued.encode(), headers=JSON)
        await one.post(b'{"messages":[{"role":"user","content":"add"}]}')
        await one.broker.set_mode("auto")
        await one.broker.rewind()

        request = Request("openai", "POST", "/v1/x", JSON, body, "https://up")
        await other.broker.confirm()
        plan = await other.broker.decide("default", Incoming(request))

        assert isinstance(plan, LiveCall)
        assert plan.replayed_ids == (issued,)
        assert other.store.calls["near"] == 0


async def test_results_swapped_behind_names_that_another_instance_learnt_miss() -> None:
    calls = (
        b'{"choices":[{"message":{"tool_calls":[{"id":"call_9f8e7d6c"},{"id":"call_0a1b2c3d"}]}}]}'
    )
    # With the history at the service, a request shows its own results alone.
    turn = b'{"input":[{"call_id":"%b","output":"a"},{"call_id":"%b","output":"a"}],"step":%d}'
    own = (b"call_9f8e7d6c", b"call_0a1b2c3d")
    async with shared_brokers("record") as found:
        one, other = found.instances
        found.responder.reply = lambda _: FakeAnswer(calls, headers=JSON)
        await one.post(b'{"messages":[{"role":"user","content":"add"}]}')
        for step in (1, 2, 3):
            await one.post(turn % (*own, step))
        await one.broker.set_mode("replay")

        assert (await one.post(turn % (b"x", b"y", 1))).outcome == "replayed"
        assert (await other.post(turn % (b"y", b"x", 2))).outcome == "miss"
        assert (await other.post(turn % (b"x", b"y", 2))).outcome == "replayed"
        assert (await one.post(turn % (b"y", b"x", 3))).outcome == "miss"

        await one.broker.rewind()
        assert (await other.post(turn % (b"y", b"x", 3))).outcome == "replayed"


async def test_a_request_without_links_never_reads_what_is_near() -> None:
    async with shared_brokers() as found:
        one = found.instances[0]
        for number in range(5):
            await one.get(f"/v1/{number}")

        assert one.store.calls["near"] == 0


async def test_a_miss_is_decided_without_reading_what_is_near() -> None:
    async with shared_brokers() as found:
        one = found.instances[0]
        for number in range(5):
            await one.get(f"/v1/{number}")
        await one.broker.set_mode("replay")
        one.store.calls.clear()

        assert (await one.get("/v1/9")).outcome == "miss"
        assert one.store.calls["near"] == one.store.calls["neighbours"] == 0


_TURN = (
    b'{"messages":[{"role":"assistant","tool_calls":[{"id":"%b"}]},'
    b'{"role":"tool","tool_call_id":"%b","content":"%b"}]}'
)


@pytest.mark.parametrize("result", [b"it rains all day", b"rain"])
async def test_a_miss_about_tools_that_no_recording_is_like_reads_nothing_near(
    result: bytes,
) -> None:
    async with shared_brokers("record") as found:
        one = found.instances[0]
        await one.post(_TURN % (b"call_9f8e7d6c", b"call_9f8e7d6c", b"sun"))
        await one.broker.set_mode("replay")
        one.store.calls.clear()

        assert (await one.post(_TURN % (b"my_1", b"my_1", result))).outcome == "miss"
        assert one.store.calls["near"] == 0


async def test_a_recording_under_other_names_is_found_however_old_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed, "MOST_NEAR", 1)
    async with shared_brokers("record") as found:
        one = found.instances[0]
        await one.post(_TURN % (b"call_9f8e7d6c", b"call_9f8e7d6c", b"sun"))
        for number in range(5):
            await one.post(b"later %d" % number)
        await one.broker.set_mode("replay")

        assert (await one.post(_TURN % (b"my_1", b"my_1", b"sun"))).outcome == "replayed"


async def test_a_hit_asks_the_store_the_same_however_much_it_holds() -> None:
    async with shared_brokers(count=1) as found:
        one = found.instances[0]
        await one.post(b"hit")
        one.store.calls.clear()
        await one.post(b"hit")
        await one.post(b"hit")
        one.store.calls.clear()
        await one.post(b"hit")
        few = dict(one.store.calls)
        for number in range(200):
            await one.get(f"/v1/{number}")
        one.store.calls.clear()
        await one.post(b"hit")

        assert few == dict(one.store.calls) == {"advance": 1}


async def test_a_hit_whose_recordings_are_known_is_one_visit_to_the_store() -> None:
    async with shared_brokers(count=1) as found:
        one = found.instances[0]
        for body in (b"a", b"b"):
            await one.post(body)
            await one.post(body)
        # The other one was recorded meanwhile: it is another cassette now.
        await one.post(b"a")
        one.store.calls.clear()

        served = [await one.post(body) for body in (b"a", b"b", b"a")]

        assert [answer.body for answer in served] == [b"answer 1", b"answer 2", b"answer 1"]
        assert dict(one.store.calls) == {"advance": 3}


async def test_the_key_of_a_hit_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def counted(request: Request, rules: Rules) -> KeyAndBody:
        computed.append(request.target)
        return key_and_body(request, rules)

    async with shared_brokers(count=1, rules=REUSED) as found:
        one = found.instances[0]
        for _ in range(2):
            await one.get("/v1/a")
        monkeypatch.setattr(received_request, "key_and_body", counted)

        assert (await one.get("/v1/a")).outcome == "replayed"
        assert computed == ["/v1/a"]


async def test_what_was_known_of_a_cassette_is_not_served_once_another_instance_changed_it() -> (
    None
):
    async with shared_brokers(rules=REUSED) as found:
        one, other = found.instances
        for _ in range(3):
            assert (await one.get()).body == b"answer 1"
        (item,) = found.common.held["default"]
        assert isinstance(item, Interaction)
        response = replace(item.response, body=b"edited")

        await other.store.edit("default", 0, replace(item, response=response))
        assert (await one.get()).body == b"edited"
        assert (await one.get()).body == b"edited"

        await other.store.edit("default", 0, None)
        assert await one.get() == ServedAnswer("recorded", b"answer 2", 1)


async def test_instances_that_know_the_recordings_replay_them_in_turn_all_the_same() -> None:
    async with shared_brokers("record", count=3, repeats="cycle") as found:
        for _ in range(4):
            await found.instances[0].get()
        await found.instances[0].broker.set_mode("replay")

        served = [(await found.instances[turn % 3].get()).index for turn in range(3)]
        served += [(await found.instances[turn % 2].get()).index for turn in range(9)]
        assert served == [0, 1, 2, 3] * 3

        works = [start(instance.get) for instance in found.instances for _ in range(8)]
        answers = await together(*works)
        assert sorted([answer.index or 0 for answer in answers]) == sorted([0, 1, 2, 3] * 6)


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_plain_hit_is_counted_behind_an_ordinary_hit_of_its_key(in_time: bool) -> None:
    async with shared_brokers("record", repeats="miss") as found:
        one, other = found.instances
        for _ in range(4):
            await one.get()
        await one.broker.set_mode("replay")
        assert (await one.get()).index == 0
        known = one.broker.followed_hits("default")
        assert known is not None
        ((_, key),) = known.turns
        steps, counted = asyncio.Queue[tuple[CursorMove, MoveDone]](), asyncio.Queue[object]()
        advance = one.store.advance
        one.store.advance = lambda *step: steps.put_nowait(step)  # type: ignore[method-assign]

        ordinary = start(one.get)
        first = await steps.get()
        plain = known.cassette.next_in_order(key, known.cassette.take, "miss", None, None)
        assert plain is not None
        known.count(key, plain.index, [key], counted.put_nowait, stays=False)
        second = await steps.get()
        one.store.advance = advance  # type: ignore[method-assign]
        if not in_time:
            assert (await other.get()).index == 1
        advance(*first)
        advance(*second)

        assert await counted.get() is in_time
        assert (await ordinary).index == (1 if in_time else 2)
        assert plain.index == 2
        assert (await one.get()).index == 3


async def test_a_rewind_begins_anew_whatever_was_known() -> None:
    async with shared_brokers("record", repeats="miss") as found:
        one, other = found.instances
        for _ in range(2):
            await one.get()
        await one.broker.set_mode("replay")
        for _ in range(3):
            assert [(await one.get()).index, (await one.get()).index] == [0, 1]
            assert (await one.get()).outcome == "miss"
            await other.broker.rewind()


@pytest.mark.slow
async def test_what_is_known_of_recordings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_index, "MOST_BYTES", 50_000)
    async with shared_brokers(count=1, rules=REUSED) as found:
        one = found.instances[0]
        for number in range(100):
            await one.get(f"/v1/{number}")
        # In their own take a write could end them.
        await one.broker.rewind()
        source = one.broker.source
        assert isinstance(source, followed.Followed)
        for _ in range(2):
            for number in range(100):
                assert (await one.get(f"/v1/{number}")).outcome == "replayed"
            # What is held only saves reading: no answer shows how much there is.
            assert (index := source.hits("default")) is not None
            assert 0 < index.documents.memory.size <= 50_000


async def test_a_cassette_begun_by_another_instance_is_continued() -> None:
    async with shared_brokers() as found:
        one, other = found.instances
        asked = Request("openai", "GET", "/new", base="https://up")
        before = await other.broker.decide("default", Incoming(asked))
        await one.get()

        plan = await other.broker.decide("default", Incoming(asked))

        assert isinstance(before, LiveCall)
        assert isinstance(plan, LiveCall)
        assert plan.cassette.head == found.common.heads["default"]
        assert before.cassette.head.run_id == plan.cassette.head.run_id


async def test_passthrough_needs_no_head_that_can_be_read() -> None:
    async with shared_brokers("passthrough") as found:
        one, other = found.instances
        await one.store.save("default", StoredCassette(CassetteHead("", "run", {"repeats": "now"})))

        await other.broker.prepare()
        assert (await other.get()).body == b"answer 1"
        await other.broker.set_mode("replay")
        with pytest.raises(CassetteCorrupt, match="repeats"):
            await other.broker.prepare()
        with pytest.raises(CassetteCorrupt, match="repeats"):
            await other.get()


async def test_a_cassette_that_cannot_be_read_is_left_out_where_all_in_use_are_counted() -> None:
    async with shared_brokers("record") as found:
        one, _ = found.instances
        await one.get()
        await one.broker.source.prepare("other")
        since = one.store.since

        async def damaged(name: str, seen: int) -> LogPage | None:
            if name == "other":
                raise CassetteCorrupt("its log lacks rows")
            return await since(name, seen)

        one.store.since = damaged  # type: ignore[method-assign]  # damaged in the database
        counts = await one.broker.source.counts()

        assert [(count.interactions, count.unused) for count in counts] == [(1, 0)]


async def test_a_recording_that_holds_a_credential_is_met_by_an_instance_that_follows() -> None:
    async with shared_brokers(rules=REUSED) as found:
        one, other = found.instances
        body = b'{"api_key": "sk-proj-Qm7Zt2Lw9Xc4Vb8Nn1Ks5Hd3", "q": "%d"}'
        # Both have an index of recordings with credentials from now on.
        await one.post(body % 0)
        assert (await other.post(body % 0)).outcome == "replayed"

        recorded = [await one.post(body % number) for number in range(1, 4)]
        served = [await other.post(body % number) for number in range(1, 4)]

        assert [answer.outcome for answer in recorded] == ["recorded"] * 3
        assert [(answer.outcome, answer.body) for answer in served] == [
            ("replayed", answer.body) for answer in recorded
        ]


@pytest.mark.parametrize("differ", [True, False])
async def test_recordings_without_room_in_memory_are_replayed_in_order(
    differ: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_index, "MOST_BYTES", 1)
    async with shared_brokers("record", repeats="miss") as found:
        one, other = found.instances
        asked = [
            Request(
                "openai",
                "POST",
                "/v1/chat",
                (*JSON, (b"X-Mark", b"%d" % (number if differ else 0))),
                b'{"q": 1}',
                "https://up",
            )
            for number in range(40)
        ]
        recorded = [await one.serve(request) for request in asked]
        await one.broker.set_mode("replay")

        served = [await other.serve(request) for request in asked]

        assert [answer.outcome for answer in served] == ["replayed"] * len(asked)
        assert [answer.body for answer in served] == [answer.body for answer in recorded]
        assert (await other.serve(asked[0])).outcome == "miss"


async def test_a_take_that_begins_while_an_index_is_read_goes_on_after_the_next_change() -> None:
    async with shared_brokers("record", repeats="miss") as found:
        one, other = found.instances
        for _ in range(4):
            await one.get()
        await one.broker.set_mode("replay")
        since, reading, gate = other.store.since, asyncio.Event(), asyncio.Event()

        async def held(name: str, seen: int) -> LogPage | None:
            page = await since(name, seen)
            if other.store.calls["since"] == 2:
                # The index is there, and is not in use yet.
                reading.set()
                await gate.wait()
            return page

        other.store.since = held  # type: ignore[method-assign]
        prepared = start(other.broker.prepare)
        await reading.wait()
        await one.broker.rewind()
        await other.broker.confirm()
        gate.set()
        await prepared
        served = [(await one.get()).index, (await other.get()).index]
        await one.broker.set_mode("auto", "another")
        served += [(await other.get()).index, (await one.get()).index]

        assert served == [0, 1, 2, 3]


async def test_a_recording_that_is_edited_while_it_is_read_is_answered_as_it_is_now() -> None:
    async with shared_brokers(rules=REUSED) as found:
        one, other = found.instances
        await one.get()
        await one.get("/v1/seen")
        assert (await other.get("/v1/seen")).outcome == "replayed"
        documents, reading, gate = other.store.documents, asyncio.Event(), asyncio.Event()

        async def held(name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
            read = await documents(name, indexes)
            reading.set()
            await gate.wait()
            return read

        other.store.documents = held  # type: ignore[method-assign]
        asked = start(other.get)
        await reading.wait()
        (item,) = [item for item in found.common.held["default"] if item.index == 0]
        assert isinstance(item, Interaction)
        response = replace(item.response, body=b"edited")
        await one.store.edit("default", 0, replace(item, response=response))
        # It follows the log of the cassette now.
        await other.get("/v1/new")
        gate.set()

        assert (await asked).body == b"edited"
        assert (await other.get()).body == b"edited"


async def test_a_recording_that_is_added_while_nothing_is_recorded_answers_what_would_miss() -> (
    None
):
    async with shared_brokers("record") as found:
        one, other = found.instances
        await one.get("/v1/a")
        await one.broker.set_mode("replay")
        assert (await other.get("/v1/b")).outcome == "miss"
        (item,) = found.common.held["default"]
        assert isinstance(item, Interaction)
        request = replace(item.request, target="/v1/b")
        more = replace(item, index=await one.store.reserve("default"), request=request)

        await one.store.append("default", found.common.heads["default"], Recording(more))

        assert (await other.get("/v1/b")).outcome == "replayed"


async def test_an_index_reads_on_once_a_step_has_many_later_rows_to_look_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed_index, "MOST_ROWS", 2)
    async with shared_brokers(rules=REUSED) as found:
        one, other = found.instances
        await one.get()
        for _ in range(2):
            await other.get()
        reads = list[int]()
        for number in range(3):
            await one.get(f"/v1/{number}")
            before = other.store.calls["since"]
            for _ in range(2):
                assert (await other.get()).outcome == "replayed"
            reads.append(other.store.calls["since"] - before)

        assert reads == [0, 0, 1]


async def test_a_cursor_that_somebody_holds_for_a_while_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cassettes, "MOST_TRIES", 20)
    async with shared_brokers("record", count=1) as found:
        one = found.instances[0]
        await one.get()
        await one.broker.set_mode("replay")
        loop, advance = asyncio.get_running_loop(), one.store.advance

        def refused(move: CursorMove, done: MoveDone) -> None:
            loop.call_soon(done, move, None)

        one.store.advance = refused  # type: ignore[method-assign]
        # Long before twenty tries with their pauses have ended.
        loop.call_later(0.1, setattr, one.store, "advance", advance)

        assert (await one.get()).outcome == "replayed"
