"""Faults set by the admin API: for all replays, and for those of one slot."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.admin_and_proxy import World, world
from tests.stores.contract.kinds import KINDS, MODEL

PATH = "/api/v1/faults"
BUSY = {"name": "busy", "do": "503"}


@pytest.fixture(params=KINDS, ids=str)
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A proxy and its admin API over each kind of store."""
    async with (
        request.param.of_test(request, tmp_path) as place,
        world(store=place.again()) as found,
    ):
        yield found


async def statuses(found: World, path: str, count: int) -> list[int]:
    return [(await found.ask(path)).status for _ in range(count)]


async def record(found: World) -> None:
    """Record two answers to one request in 'shared'."""
    await found.done("PUT", "/api/v1/slots/rec", {"cassette": "shared", "mode": "record"})
    assert await statuses(found, "/@~rec/v1/models", 2) == [200, 200]
    await found.done("PUT", "/api/v1/mode", {"mode": "replay"})


async def test_a_fault_for_all_replays_counts_in_each_take_and_moves_no_cursor(
    stored: World,
) -> None:
    await record(stored)
    said = await stored.done("PUT", PATH, {"faults": [{**BUSY, "times": 2}]})
    seen = await statuses(stored, "/@shared/v1/models", 2)
    answer = await stored.ask("/@shared/v1/models")
    await stored.done("POST", "/api/v1/rewind")
    seen += await statuses(stored, "/@shared/v1/models", 3)

    assert said == await stored.got(PATH) == {"faults": [{**BUSY, "times": 2}]}
    assert (answer.status, await answer.json()) == (200, {"answer": 1})
    assert answer.headers["Tapeway-Interaction"] == "0"
    assert seen == [503, 503, 503, 503, 200]


async def test_the_faults_of_a_slot_are_for_it_alone_and_count_in_its_take(stored: World) -> None:
    await record(stored)
    slot = {"cassette": "shared", "mode": "replay", "faults": [BUSY]}
    await stored.done("PUT", "/api/v1/slots/w0", slot)
    seen = await statuses(stored, "/@~w0/v1/models", 2)
    others = await statuses(stored, "/@shared/v1/models", 1)
    await stored.done("PUT", PATH, {"faults": []})
    seen += await statuses(stored, "/@~w0/v1/models", 1)
    await stored.done("POST", "/api/v1/rewind", {"cassette": "shared"})
    seen += await statuses(stored, "/@~w0/v1/models", 2)
    await stored.done("PUT", "/api/v1/slots/w0", {"cassette": "shared", "mode": "replay"})
    seen += await statuses(stored, "/@~w0/v1/models", 1)

    assert seen == [503, 200, 200, 503, 200, 200]
    assert others == [200]
    entries = (await stored.got("/api/v1/journal?slot=w0"))["entries"]
    assert [entry["faulted"] for entry in reversed(entries)] == [
        *("busy", None, None, "busy", None, None)
    ]
    [report] = [
        each
        for each in (await stored.got("/api/v1/report"))["cassettes"]
        if each["name"] == "shared"
    ]
    first = report["faulted"][0]
    assert (first["fault"], first["do"], first["path"]) == ("busy", "503", "/v1/models")
    assert first["next"] == "retried"


@pytest.mark.parametrize("kind", [kind for kind in [*KINDS, MODEL] if kind.shared], ids=str)
async def test_a_fault_counts_on_every_instance(
    kind: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with (
        kind.of_test(request, tmp_path) as place,
        world(store=place.again()) as one,
        world(store=place.again()) as two,
    ):
        await record(one)
        await one.done("PUT", PATH, {"faults": [{**BUSY, "times": 3}]})
        seen = [(await each.ask("/@shared/v1/models")).status for each in (one, two, two, one, two)]
        assert (await two.got(PATH))["faults"][0]["name"] == "busy"
        await two.done("POST", "/api/v1/rewind")
        again = [(await each.ask("/@shared/v1/models")).status for each in (one, two, one, two)]
        await two.done("PUT", PATH, {"faults": []})
        await two.done("POST", "/api/v1/rewind")
        gone = await statuses(one, "/@shared/v1/models", 1)

    assert seen == [503, 503, 503, 200, 200]
    assert again == [503, 503, 503, 200]
    assert gone == [200]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"do": "503"}, "faults[0].name: give each fault a name"),
        ({"name": "a b", "do": "503"}, "faults[0].name: give each fault a name"),
        ({"name": "a", "do": "explode"}, "faults[0] ('a').do: must be one of 429, 500, 503"),
        ({"name": "a"}, "faults[0] ('a').do: must be one of"),
        ({"name": "a", "do": "503", "time": 1}, "faults[0]: there is no 'time'; known are name"),
        ({"name": "a", "do": "503", "match": {"url": "x"}}, ".match: there is no 'url'; known"),
        ({"name": "a", "do": "503", "match": {"path": 1}}, ".match.path: must be a text"),
        ({"name": "a", "do": "503", "match": []}, ".match: must be an object with method"),
        ({"name": "a", "do": "reset", "after": "3"}, '.after: must be "head", "tool_call", a'),
        ({"name": "a", "do": "reset", "after": "0 events"}, '.after: must be "head"'),
        ({"name": "a", "do": "503", "after": "1 event"}, "stands in place of the whole answer"),
        ({"name": "a", "do": "repeat", "after": "9 bytes"}, "say which event comes twice"),
        ({"name": "a", "do": "corrupt", "after": "head"}, "there is no event before the head"),
        ({"name": "a", "do": "stall"}, ".seconds: say how long, as seconds = 0.5"),
        ({"name": "a", "do": "stall", "seconds": -1}, ".seconds: must be a number of seconds"),
        ({"name": "a", "do": "reset", "seconds": 1}, ".seconds: 'reset' has none; leave it out"),
        ({"name": "a", "do": "reset", "retry_after": 1}, ".retry_after: 'reset' has none"),
        ({"name": "a", "do": "503", "times": -1}, ".times: must be a whole number from 0 to"),
        ({"name": "a", "do": "503", "times": True}, ".times: must be a whole number"),
        ({"name": "a", "do": "close", "code": 1005}, ".code: must be a close code that a"),
        ({"name": "a", "do": "500", "code": 1011}, ".code: '500' has none"),
    ],
)
async def test_what_is_no_fault_is_refused_with_its_place_and_what_to_do(
    fault: dict[str, object], said: str
) -> None:
    async with world() as found:
        responses = [
            await found.call("PUT", PATH, {"faults": [fault]}),
            await found.call("PUT", "/api/v1/slots/w0", {"cassette": "x", "faults": [fault]}),
            await found.call("POST", "/api/v1/check", {"cassette": "x", "faults": [fault]}),
        ]
        for response in responses:
            answer = await response.json()
            assert (response.status, answer["error"]["code"]) == (400, "bad_fault")
            assert said in answer["message"]
        assert await found.got(PATH) == {"faults": []}


async def test_two_faults_of_one_name_are_refused() -> None:
    async with world() as found:
        response = await found.call("PUT", PATH, {"faults": [BUSY, {**BUSY, "do": "500"}]})

    assert response.status == 400
    assert "faults[1].name: 'busy' is the name of another fault" in await response.text()
