"""The mode table, the repeat rule in force, and where a request looks for its recording."""

from dataclasses import replace

import pytest

from tapeway.core.cassette.plan import Incoming, LiveCall
from tapeway.core.http.routing import DEFAULT_ROUTE, Route, RouteTable
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.engine.recording.selection import Policy
from tapeway.errors import NoRoute
from tests.support.fakes.broker import ServedAnswer, recorded, running_broker
from tests.support.fakes.failing_store import FakeStore
from tests.support.fakes.live_service import FakeAnswer
from tests.support.reuse import REUSED


@pytest.mark.parametrize(
    ("mode", "bodies", "outcome", "asked", "held"),
    [
        ("replay", ["old"], "replayed", 0, [b"old"]),
        ("record", ["old"], "recorded", 1, [b"answer 1"]),
        ("auto", ["old"], "replayed", 0, [b"old"]),
        ("passthrough", ["old"], "live", 1, [b"old"]),
        ("replay", [], "miss", 0, []),
        ("record", [], "recorded", 1, [b"answer 1"]),
        ("auto", [], "recorded", 1, [b"answer 1"]),
        ("passthrough", [], "live", 1, []),
    ],
)
async def test_a_request_is_served_as_the_mode_says(
    mode: Mode, bodies: list[str], outcome: str, asked: int, held: list[bytes]
) -> None:
    async with running_broker(mode, store=await recorded(*bodies)) as running:
        assert (await running.get()).outcome == outcome
        assert running.responder.connections == asked
        assert await running.stored() == running.held() == held


async def test_auto_asks_again_for_a_used_up_answer_where_repeats_are_a_miss() -> None:
    async with running_broker(
        policy=Policy(repeats="miss"), store=await recorded("old")
    ) as running:
        assert await running.get() == ServedAnswer("replayed", b"old", 0)
        assert await running.get() == ServedAnswer("recorded", b"answer 1", 1)
        assert await running.get() == ServedAnswer("recorded", b"answer 2", 2)
        await running.broker.rewind()
        assert [(await running.get()).body for _ in range(3)] == [b"old", b"answer 1", b"answer 2"]


async def test_auto_records_the_statuses_of_the_setting() -> None:
    async with running_broker(policy=Policy(record_statuses=frozenset({404}))) as running:
        running.responder.reply = lambda number: FakeAnswer(
            b"no", status=404 if number == 1 else 200
        )

        assert (await running.get()).outcome == "recorded"
        assert (await running.get("/v1/other")).outcome == "live"


async def test_record_replaces_once_a_take_and_then_appends() -> None:
    async with running_broker("record", store=await recorded("old 1", "old 2")) as running:
        assert [(await running.get()).index for _ in range(2)] == [2, 3]
        assert await running.stored() == running.held() == [b"answer 1", b"answer 2"]

        await running.broker.rewind()
        await running.get()

        assert await running.stored() == running.held() == [b"answer 3"]


async def test_record_asks_for_each_of_two_equal_requests() -> None:
    async with running_broker("record") as running:
        running.responder.gate.clear()
        clients = [running.start(), running.start()]
        await running.responder.reached(2)
        running.responder.gate.set()

        assert {(await client).outcome for client in clients} == {"recorded"}
        assert sorted(await running.stored()) == [b"answer 1", b"answer 2"]


async def test_passthrough_records_nothing_and_relays_pieces() -> None:
    async with running_broker("passthrough") as running:
        broker = running.broker
        request = Request("openai", "GET", "/", base="https://up")
        plan = await broker.decide("default", Incoming(request))
        assert isinstance(plan, LiveCall)
        async with broker.recorder.relay(plan) as live:
            assert [piece async for piece in live.pieces()] == [b"answer 1"]
        assert await running.stored() == []


async def test_a_guessed_route_falls_back_to_what_was_recorded_on_the_default() -> None:
    async with running_broker(
        "replay", store=await recorded("old", route=DEFAULT_ROUTE)
    ) as running:
        assert await running.get(guessed=True) == ServedAnswer("replayed", b"old", 0)
        assert (await running.get(guessed=False)).outcome == "miss"


async def test_a_guessed_route_comes_before_the_default() -> None:
    store = await recorded("on default", route=DEFAULT_ROUTE)
    interaction = Interaction(
        7,
        Request("openai", "GET", "/v1/x"),
        Response(ResponseHead(200), b"on openai"),
    )
    await store.append("default", CassetteHead("", "run-1"), Recording(interaction))
    async with running_broker("replay", store=store) as running:
        assert [(await running.get(guessed=True)).body for _ in range(2)] == [b"on openai"] * 2


async def test_a_used_up_default_recording_is_a_miss_that_says_so() -> None:
    policy = Policy(repeats="miss")
    async with running_broker(
        "replay", policy=policy, store=await recorded("old", route=DEFAULT_ROUTE)
    ) as running:
        await running.get(guessed=True)

        assert b"once, all used up" in (await running.get(guessed=True)).body


async def test_a_path_of_no_route_is_a_miss_only_where_the_default_has_recordings() -> None:
    async with running_broker(
        "replay", store=await recorded("old", route=DEFAULT_ROUTE)
    ) as running:
        assert await running.get(route=DEFAULT_ROUTE, guessed=True) == ServedAnswer(
            "replayed", b"old", 0
        )
        assert (
            await running.get("/elsewhere", route=DEFAULT_ROUTE, guessed=True)
        ).outcome == "miss"
    async with running_broker("replay", store=await recorded("old")) as running:
        with pytest.raises(NoRoute, match="azure, openai"):
            await running.get(route=DEFAULT_ROUTE, guessed=True)


async def test_a_route_without_a_url_replays_and_misses_but_cannot_be_asked() -> None:
    async with running_broker("replay", store=await recorded("old", route="azure")) as running:
        assert (await running.get(route="azure")).outcome == "replayed"
        assert (await running.get("/other", route="azure")).outcome == "miss"
        for mode in ("auto", "record", "passthrough"):
            await running.broker.set_mode(mode)
            with pytest.raises(NoRoute, match="--route azure="):
                await running.get("/other", route="azure")


async def test_a_refusal_repeats_no_credential_of_the_path() -> None:
    known = [Secret("token", b"0123456789:secret-in-a-path")]
    for mode in ("auto", "replay"):
        async with running_broker(mode, known=known) as running:
            with pytest.raises(NoRoute) as caught:
                await running.get(
                    "/bot0123456789:secret-in-a-path/send", route=DEFAULT_ROUTE, guessed=True
                )
            assert "secret" not in caught.value.message


async def test_each_caller_of_a_take_gets_an_answer_of_its_own_and_a_later_one_any() -> None:
    callers: list[Headers] = [
        ((b"authorization", b"Bearer sk-0123456789abc"),),
        ((b"authorization", b"Bearer sk-another-key"),),
        (),
    ]
    async with running_broker(rules=REUSED) as running:
        outcomes = [(await running.get(headers=caller)).outcome for caller in (*callers, *callers)]
        await running.broker.rewind()
        answers = [await running.get(headers=caller) for caller in reversed(callers)]
        other = await running.get(headers=((b"authorization", b"Bearer sk-of-a-third-run"),))

        assert outcomes == ["recorded"] * 3 + ["replayed"] * 3
        assert [answer.body for answer in answers] == [b"answer 3", b"answer 2", b"answer 1"]
        assert other.outcome == "replayed"
        assert running.responder.asked[0].headers == (
            (b"authorization", b"Bearer sk-0123456789abc"),
        )
        assert b"sk-0123" not in repr(await running.store.load("default", writable=False)).encode()


async def test_a_route_that_came_with_an_upstream_is_asked_there() -> None:
    routes = RouteTable({}, Route(DEFAULT_ROUTE, "http://mine/base"))
    async with running_broker(routes=routes) as running:
        request = Request(DEFAULT_ROUTE, "GET", "/x", base="http://mine/base")
        plan = await running.broker.decide("default", Incoming(request))
        assert isinstance(plan, LiveCall)
        await running.broker.recorder.perform(plan)

        assert running.responder.asked[0].url == "http://mine/base/x"


async def stating(rule: str, *bodies: str) -> FakeStore:
    store = await recorded(*bodies)
    stored = await store.load("default", writable=True)
    assert stored is not None
    head = CassetteHead("", "run-1", {"repeats": rule})
    await store.save("default", replace(stored, head=head))
    store.calls.clear()
    return store


@pytest.mark.parametrize(
    ("rule", "mode", "said"),
    [
        ("miss", "replay", ["1", "2", "miss", "miss"]),
        ("cycle", "replay", ["1", "2", "1", "2"]),
        ("first", "replay", ["1", "1", "1", "1"]),
        ("last", "replay", ["1", "2", "2", "2"]),
        # What is used up is asked for again and is a recording more.
        ("miss", "auto", ["1", "2", "answer 1", "answer 2"]),
        ("first", "auto", ["1", "2", "answer 1", "answer 2"]),
    ],
)
async def test_the_rule_of_the_cassette_is_in_force(rule: str, mode: Mode, said: list[str]) -> None:
    async with running_broker(mode, store=await stating(rule, "1", "2")) as running:
        served = [await running.get() for _ in said]

    found = ["miss" if answer.outcome == "miss" else answer.body.decode() for answer in served]
    assert found == said


async def test_the_repeat_rule_of_the_settings_comes_first() -> None:
    store = await stating("miss", "1", "2")
    async with running_broker("replay", policy=Policy(repeats="last"), store=store) as running:
        assert [(await running.get()).body for _ in range(3)] == [b"1", b"2", b"2"]
