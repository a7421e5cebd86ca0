"""Slots: a base URL that stays the same while the admin API points it elsewhere."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.admin_and_proxy import World, world
from tests.stores.contract.kinds import KINDS
from tests.support.canary import canary


@pytest.fixture(params=KINDS, ids=str)
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A proxy and its admin API over each kind of store."""
    async with (
        request.param.of_test(request, tmp_path) as place,
        world(store=place.again()) as found,
    ):
        yield found


async def answers(found: World, slot: str, count: int = 1) -> list[Any]:
    """What requests through a slot are answered, in order; the status of those that fail."""
    seen = []
    for _ in range(count):
        response = await found.ask(f"/@~{slot}/v1/models")
        seen.append((await response.json())["answer"] if response.ok else response.status)
    return seen


async def record_three(found: World, cassette: str = "shared") -> None:
    await found.done("PUT", "/api/v1/slots/rec", {"cassette": cassette, "mode": "record"})
    assert await answers(found, "rec", 3) == [1, 2, 3]


async def point(found: World, slot: str, cassette: str = "shared", mode: str = "replay") -> Any:
    return await found.done("PUT", f"/api/v1/slots/{slot}", {"cassette": cassette, "mode": mode})


async def test_a_slot_leads_to_the_cassette_it_points_at(stored: World) -> None:
    said = await point(stored, "w0", "tests/one", "auto")
    first = await stored.ask("/@~w0/v1/models")
    await point(stored, "w0", "tests/two", "auto")
    second = await stored.ask("/@~w0/v1/models")

    assert said == {"slot": "w0", "cassette": "tests/one", "mode": "auto", "take": said["take"]}
    assert [answer.headers["Tapeway-Cassette"] for answer in (first, second)] == [
        "tests/one",
        "tests/two",
    ]
    assert [await answer.json() for answer in (first, second)] == [{"answer": 1}, {"answer": 2}]
    assert list(await stored.broker.store.names()) == ["tests/one", "tests/two"]


async def test_each_slot_has_a_take_of_its_own(stored: World) -> None:
    await record_three(stored)
    await point(stored, "w0")
    await point(stored, "w1")

    seen = [await answers(stored, slot) for slot in ("w0", "w1", "w0", "w0", "w1")]

    assert seen == [[1], [1], [2], [3], [2]]


async def test_a_header_leads_a_request_through_another_slot_than_its_path(stored: World) -> None:
    await record_three(stored)
    await point(stored, "w0")
    await point(stored, "w1")
    url, headers = f"{stored.proxy}/@~w0/v1/models", {"Tapeway-Cassette": "~w1"}

    seen = await answers(stored, "w0", 2)
    async with stored.http.get(url, headers=headers) as response:
        named = await response.json()

    assert (seen, named) == ([1, 2], {"answer": 1})
    (entry,) = (await stored.got("/api/v1/journal?slot=w1"))["entries"]
    assert entry["cassette"] == "shared"


async def test_pointing_a_slot_again_begins_its_take_anew(stored: World) -> None:
    await record_three(stored)
    takes = [(await point(stored, "w0"))["take"], (await point(stored, "w0"))["take"]]
    assert await answers(stored, "w0", 2) == [1, 2]
    await point(stored, "w0")

    assert await answers(stored, "w0", 2) == [1, 2]
    assert takes[0] < takes[1]


async def test_the_mode_of_a_slot_is_its_own(stored: World) -> None:
    await record_three(stored)
    await point(stored, "w0", mode="replay")
    await point(stored, "w1", mode="passthrough")
    await point(stored, "w2", "none", mode="replay")

    assert await answers(stored, "w0") == [1]
    assert await answers(stored, "w1") == [4]
    assert await answers(stored, "w2") == [400]
    assert (await stored.got("/api/v1/mode"))["mode"] == "auto"


async def test_a_slot_without_a_mode_follows_that_of_its_cassette(stored: World) -> None:
    await record_three(stored)
    await stored.done("PUT", "/api/v1/slots/w0", {"cassette": "none"})

    await stored.done("PUT", "/api/v1/mode", {"mode": "replay"})

    assert (await stored.got("/api/v1/slots/w0"))["mode"] == "replay"
    assert await answers(stored, "w0") == [400]


async def test_recording_through_a_slot_again_replaces_what_was_there(stored: World) -> None:
    await record_three(stored)
    await point(stored, "w0", mode="record")
    assert await answers(stored, "w0") == [4]
    await point(stored, "w0", mode="replay")

    assert await answers(stored, "w0", 2) == [4, 4]


async def test_what_any_slot_used_is_used(stored: World) -> None:
    await record_three(stored)
    await stored.done("POST", "/api/v1/eject", {"cassette": "shared"})
    for slot in ("w0", "w1", "w0"):
        await point(stored, slot)
    await answers(stored, "w0")
    await point(stored, "w0", "elsewhere")
    await answers(stored, "w1", 2)
    await stored.done("DELETE", "/api/v1/slots/w1")

    (report,) = [
        cassette
        for cassette in (await stored.got("/api/v1/report"))["cassettes"]
        if cassette["name"] == "shared"
    ]
    said = await stored.done("POST", "/api/v1/eject", {"cassette": "shared", "prune": True})

    assert [interaction["index"] for interaction in report["unused"]] == [2]
    assert [interaction["index"] for interaction in said["cassettes"][0]["unused"]] == [2]
    await point(stored, "w0")
    assert await answers(stored, "w0", 3) == [1, 2, 2]


async def test_a_rewind_goes_back_to_the_first_recording_for_slots_too(stored: World) -> None:
    await record_three(stored)
    await point(stored, "w0")
    assert await answers(stored, "w0", 2) == [1, 2]

    await stored.done("POST", "/api/v1/rewind", {"cassette": "shared"})

    assert await answers(stored, "w0", 2) == [1, 2]


async def test_rules_added_meanwhile_leave_each_slot_where_it_is(open_world: World) -> None:
    await record_three(open_world)
    await point(open_world, "w0")
    await point(open_world, "w1")
    assert await answers(open_world, "w0", 2) == [1, 2]
    await open_world.ask("/@~w0/v1/other")
    (entry,) = (await open_world.got("/api/v1/journal?outcome=miss"))["entries"]

    await open_world.done(
        "POST", f"/api/v1/journal/{entry['id']}/accept", {"rule": {"ignore": ["query.x"]}}
    )

    assert await answers(open_world, "w0") == [3]
    assert await answers(open_world, "w1") == [1]


async def test_a_slot_that_was_never_set_is_404(open_world: World) -> None:
    calls = [
        await open_world.ask("/@~w0/v1/models"),
        await open_world.call("GET", "/api/v1/slots/w0"),
        await open_world.call("DELETE", "/api/v1/slots/w0"),
    ]
    await point(open_world, "w0")
    gone = await open_world.done("DELETE", "/api/v1/slots/w0")
    calls.append(await open_world.ask("/@~w0/v1/models"))

    assert gone == {"removed": "w0"}
    assert [(call.status, (await call.json())["error"]["code"]) for call in calls] == [
        (404, "no_slot")
    ] * 4
    assert calls[0].headers["Tapeway-Outcome"] == "error"
    assert open_world.service.connections == 0


@pytest.mark.parametrize("name", ["~x", "a%2Fb", "%20", "-x"])
async def test_a_name_that_is_none_is_400(open_world: World, name: str) -> None:
    asked = await open_world.ask(f"/@~{name}/v1/models")
    put = await open_world.call("PUT", f"/api/v1/slots/{name}", {"cassette": "x"})

    assert [(answer.status, (await answer.json())["error"]["code"]) for answer in (asked, put)] == [
        (400, "bad_slot_name")
    ] * 2


async def test_a_header_names_the_cassette_of_its_request_alone(open_world: World) -> None:
    await point(open_world, "w0", "by-slot", "auto")

    named = await open_world.ask("/@~w0/v1/models", cassette="by-header")

    assert named.headers["Tapeway-Cassette"] == "by-header"
    (entry,) = (await open_world.got("/api/v1/journal"))["entries"]
    assert (entry["cassette"], entry["slot"], entry["take"]) == ("by-header", None, None)


async def test_the_journal_tells_slots_and_their_takes_apart(open_world: World) -> None:
    takes = []
    for slot in ("w0", "w1", "w0"):
        takes.append((await point(open_world, slot, "shared", "auto"))["take"])
        await open_world.ask(f"/@~{slot}/v1/models")

    async def seen(query: str) -> list[tuple[str, int]]:
        entries = (await open_world.got(f"/api/v1/journal?{query}"))["entries"]
        return [(entry["slot"], entry["take"]) for entry in entries]

    assert await seen("slot=w0") == [("w0", takes[2]), ("w0", takes[0])]
    assert await seen(f"slot=w0&take={takes[0]}") == [("w0", takes[0])]
    assert await seen("slot=w2") == []


async def test_what_was_sent_since_a_slot_was_pointed_is_there_after_a_rewind_too(
    stored: World,
) -> None:
    await record_three(stored)
    await point(stored, "w1", "shared")
    takes = [(await point(stored, "w0"))["take"]]
    steps = [
        ("POST", "rewind", {"cassette": "shared"}),
        ("POST", "rewind", {}),
        ("POST", "eject", {"cassette": "shared"}),
        ("PUT", "mode", {"mode": "auto", "cassette": "shared"}),
        ("POST", "insert", {"cassette": "shared"}),
    ]
    for number, (method, path, body) in enumerate(steps):
        await stored.ask(f"/@~w0/v1/models?number={number}")
        await stored.ask(f"/@~w1/v1/models?number={number}")
        await stored.done(method, f"/api/v1/{path}", body)
        takes.append((await stored.got("/api/v1/slots/w0"))["take"])

    sent = (await stored.got("/api/v1/slots/w0/requests"))["requests"]
    later = (await stored.got(f"/api/v1/slots/w0/requests?since={takes[3]}"))["requests"]
    one = (await stored.got(f"/api/v1/slots/w0/requests?take={takes[2]}"))["requests"]
    journal = (await stored.got(f"/api/v1/journal?slot=w0&since={takes[3]}"))["entries"]

    numbers = [int(request["path"].rpartition("=")[2]) for request in sent]
    assert numbers == [*range(len(steps))]
    assert [request["take"] for request in sent] == takes[:-1]
    assert (later, one) == (sent[3:], [sent[2]])
    assert [entry["id"] for entry in journal] == [request["id"] for request in sent[:2:-1]]
    await point(stored, "w0")
    assert await stored.got("/api/v1/slots/w0/requests") == {"requests": []}


async def test_a_value_that_one_sent_request_tells_of_is_replaced_in_the_others(
    open_world: World,
) -> None:
    token = "Zq7TnV4mXc9LpR2sWk8HdY3b"
    await point(open_world, "w0", "shared", "auto")
    for text in (f"is {token} right?", f"export HF_TOKEN={token}", f"echo {token}"):
        body = {"messages": [{"role": "user", "content": text}]}
        async with open_world.http.post(
            f"{open_world.proxy}/@~w0/v1/chat/completions", json=body
        ) as response:
            await response.read()

    said = (await open_world.got("/api/v1/slots/w0/requests"))["requests"]

    assert token not in json.dumps(said)
    assert [json.dumps(each).count("REDACTED.hf_token.") for each in said] == [1, 1, 1]


async def test_what_was_sent_is_there_in_every_mode_without_its_secrets(open_world: World) -> None:
    key = canary()
    await point(open_world, "w0", "shared", "auto")
    first = (await open_world.got("/api/v1/slots/w0"))["take"]
    body = {"messages": [{"role": "user", "content": f"my key is {key}"}]}
    url = f"{open_world.proxy}/@~w0/v1/chat/completions?key={key}"
    for mode in ("auto", "replay", "replay"):
        await point(open_world, "w0", "shared", mode)
        async with open_world.http.post(
            url, json=body, headers={"Authorization": f"Bearer {key}", "X-Own": "1"}
        ) as response:
            await response.read()
    async with open_world.http.post(f"{open_world.proxy}/@~w0/v1/x", data=b"\xff") as response:
        await response.read()

    said = (await open_world.got("/api/v1/slots/w0/requests"))["requests"]
    none = await open_world.got(f"/api/v1/slots/w0/requests?take={first}")

    assert none == {"requests": []}
    chat, binary = said
    assert (chat["method"], chat["route"]) == ("POST", "default")
    assert chat["path"].startswith("/v1/chat/completions?key=REDACTED.")
    assert chat["body"]["messages"][0]["content"].startswith("my key is REDACTED.")
    assert ["Content-Type", "application/json"] in chat["headers"]
    assert key not in json.dumps(said)
    assert (binary["path"], binary["body"]) == ("/v1/x", None)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"cassette": "../x"}, "the cassette name must be up to 8 segments"),
        ({"cassette": "x", "rules": {"ignor": []}}, "rules.ignor: there is no such rule"),
    ],
)
async def test_a_name_or_a_rule_can_be_checked_before_a_slot_needs_it(
    open_world: World, sent: dict[str, object], said: str
) -> None:
    good = {"cassette": "x", "rules": {"ignore": ["body.id"]}}

    assert await open_world.done("POST", "/api/v1/check", good) == {"cassette": "x"}
    refused = await open_world.call("POST", "/api/v1/check", sent)

    assert refused.status == 400
    assert said in await refused.text()
    assert list(await open_world.broker.store.names()) == []
