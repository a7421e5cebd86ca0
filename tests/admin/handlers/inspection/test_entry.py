"""One journal entry as a whole: a miss beside the nearest recording, and how a hit was found."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.ports import CassetteStore
from tests.admin.admin_and_proxy import World, world

PATH = "/v1/chat/completions"
KEY = "sk-proj-Zk3mQ8vT1xW5yB7nD2fH4jL6pR9sA0cE"


@pytest.fixture
async def stored_world(store: CassetteStore) -> AsyncIterator[World]:
    async with world(store=store) as found:
        yield found


async def ask(world: World, body: object, path: str = PATH, **headers: str) -> None:
    async with world.http.post(world.proxy + path, json=body, headers=headers) as response:
        await response.read()


async def newest(world: World) -> Any:
    (entry, *_) = (await world.got("/api/v1/journal?limit=1"))["entries"]
    return await world.got(f"/api/v1/journal/{entry['id']}")


def prompt(*texts: str, **more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], **more}


async def test_a_miss_shows_both_documents_and_each_leaf_that_differs(stored_world: World) -> None:
    await ask(stored_world, prompt("one", "two", user="u-1"))
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(stored_world, prompt("zero", "one", "two", user="u-2"))

    found = await newest(stored_world)

    assert found["entry"]["outcome"] == "miss"
    assert found["request"]["document"]["body"]["user"] == "u-2"
    assert found["nearest"]["index"] == 0
    assert found["nearest"]["document"]["body"]["messages"][1]["content"] == "two"
    assert found["nearest"]["more"] is False
    inserted, user = sorted(
        found["nearest"]["differences"], key=lambda difference: difference["path"]
    )
    assert inserted["steps"] == ["body", "messages", 0]
    assert "recorded" not in inserted
    assert (user["path"], user["recorded"], user["requested"]) == ("body.user", "u-1", "u-2")
    assert user["recorded_steps"] is None
    assert found["recording"] is None


async def test_a_miss_shows_its_nearest_recording_however_many_are_newer(
    stored_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeway.admin.handlers.inspection.entry.MOST_NEAR", 1)
    for text in ("the first of these", "another", "and one more"):
        await ask(stored_world, prompt(text))
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(stored_world, prompt("the first of those"))

    found = await newest(stored_world)

    assert found["nearest"]["index"] == 0
    assert found["nearest"]["document"]["body"] == prompt("the first of these")


async def test_a_place_after_an_inserted_element_is_told_on_both_sides(open_world: World) -> None:
    await ask(open_world, prompt("one", "two", "three"))
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(open_world, prompt("zero", "one", "2", "three"))

    differences = (await newest(open_world))["nearest"]["differences"]

    changed = next(
        difference
        for difference in differences
        if "recorded" in difference and "requested" in difference
    )
    assert changed["steps"] == ["body", "messages", 2, "content"]
    assert changed["recorded_steps"] == ["body", "messages", 1, "content"]


async def test_each_part_of_a_miss_has_a_verdict_and_a_reason(stored_world: World) -> None:
    await ask(stored_world, prompt("one"), f"{PATH}?v=1")
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(stored_world, prompt("two"), f"{PATH}?v=2")

    found = (await newest(stored_world))["verdicts"]

    assert {verdict["part"]: verdict["verdict"] for verdict in found} == {
        "route": "ok",
        "method": "ok",
        "path": "ok",
        "query": "differs",
        "body": "differs",
        "headers": "not_compared",
        "repeats": "not_compared",
    }
    reasons = {verdict["part"]: verdict["reason"] for verdict in found}
    assert reasons["query"] == "at query.v"
    assert reasons["body"] == "at body.messages[0].content"


async def test_without_a_recording_of_the_path_that_is_what_differs(stored_world: World) -> None:
    await ask(stored_world, prompt("one"))
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(stored_world, prompt("one"), "/v1/elsewhere")

    found = await newest(stored_world)

    verdicts = {verdict["part"]: verdict["verdict"] for verdict in found["verdicts"]}
    assert found["nearest"] is None
    assert verdicts["path"] == "differs"
    assert verdicts["body"] == "not_compared"


async def test_used_up_recordings_are_the_verdict_on_repeats() -> None:
    async with world(mode="auto") as found:
        await ask(found, prompt("one"))
        whole = await found.got("/api/v1/cassettes/default")
        whole["meta"]["repeats"] = "miss"
        await found.done("PUT", "/api/v1/cassettes/default", whole)
        await found.done("PUT", "/api/v1/mode", {"mode": "replay"})
        await ask(found, prompt("one"))
        await ask(found, prompt("one"))

        miss = await newest(found)

    repeats = miss["verdicts"][-1]
    assert (repeats["part"], repeats["verdict"]) == ("repeats", "differs")
    assert repeats["reason"] == "all used up in this take: #0"
    assert {verdict["verdict"] for verdict in miss["verdicts"][:-1]} <= {"ok", "not_compared"}


async def test_the_preview_says_what_would_answer_and_changes_nothing(stored_world: World) -> None:
    await ask(stored_world, prompt("one", request_id="11111111-2222-4333-8444-555555555555"))
    await ask(stored_world, prompt("other", request_id="11111111-2222-4333-8444-666666666666"))
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    sent = prompt("one", request_id="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee")
    await ask(stored_world, sent)

    before = await newest(stored_world)
    await ask(stored_world, sent)
    still = await newest(stored_world)
    await stored_world.done("POST", f"/api/v1/journal/{before['entry']['id']}/accept", {})
    await ask(stored_world, sent)
    hit = await newest(stored_world)

    assert before["suggestion"] is not None
    assert before["preview"]["answers"] == [0]
    assert before["preview"]["complete"] is True
    assert still["entry"]["outcome"] == "miss"
    assert (hit["entry"]["outcome"], hit["recording"]["index"]) == ("replayed", 0)
    assert hit["recording"]["by"] == "rules"


async def test_after_the_rule_was_accepted_the_old_miss_shows_no_difference(
    open_world: World,
) -> None:
    await ask(open_world, prompt("one", request_id="11111111-2222-4333-8444-555555555555"))
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(open_world, prompt("one", request_id="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"))
    miss = (await newest(open_world))["entry"]["id"]
    await open_world.done("POST", f"/api/v1/journal/{miss}/accept", {})

    found = await open_world.got(f"/api/v1/journal/{miss}")

    assert found["nearest"]["differences"] == []
    assert "differs" not in {verdict["verdict"] for verdict in found["verdicts"]}


async def test_a_hit_names_its_recording_and_how_it_was_found(stored_world: World) -> None:
    await ask(stored_world, prompt("one"))
    recorded = await newest(stored_world)
    await ask(stored_world, prompt("one"))
    hit = await newest(stored_world)

    assert recorded["recording"]["by"] == "live"
    assert hit["recording"] == {
        "cassette": "default",
        "index": 0,
        "by": "key",
        "reason": "its match key is equal",
    }
    assert (hit["request"], hit["nearest"], hit["verdicts"]) == (None, None, [])


async def test_no_secret_of_the_request_is_in_its_entry(stored_world: World) -> None:
    await ask(stored_world, prompt("one"))
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(stored_world, prompt(f"use {KEY}", api_key=KEY), Authorization=f"Bearer {KEY}")

    found = await newest(stored_world)

    assert found["request"]["document"]["body"]["messages"][0]["content"].startswith("use REDACTED")
    assert KEY not in json.dumps(found)


async def test_a_cassette_that_is_gone_leaves_the_request(open_world: World) -> None:
    await ask(open_world, prompt("one"))
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(open_world, prompt("two"))
    miss = (await newest(open_world))["entry"]["id"]
    await open_world.done("DELETE", "/api/v1/cassettes/default")

    found = await open_world.got(f"/api/v1/journal/{miss}")

    assert found["request"]["document"]["body"]["messages"][0]["content"] == "two"
    assert found["nearest"] is None


async def test_an_id_that_is_not_in_the_journal_is_404(open_world: World) -> None:
    response = await open_world.call("GET", "/api/v1/journal/tw-none")

    assert response.status == 404
    assert (await response.json())["error"]["code"] == "no_entry"


async def test_a_miss_above_a_base_is_compared_with_the_base_s_recording(
    stored_world: World,
) -> None:
    await ask(stored_world, prompt("one"), "/@below" + PATH)
    await stored_world.done("POST", "/api/v1/eject", {"cassette": "below"})
    store = stored_world.broker.store
    below = await store.load("below", writable=False)
    assert below is not None
    head = replace(below.head, meta={"base": {"cassette": "below"}})
    await store.save("above", StoredCassette(head))
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(stored_world, prompt("one"), "/@above" + PATH)
    hit = await newest(stored_world)
    call = await stored_world.got(f"/api/v1/journal/{hit['entry']['id']}/call")
    await ask(stored_world, prompt("two"), "/@above" + PATH)
    missed = await newest(stored_world)

    entry = hit["entry"]
    assert (entry["outcome"], entry["cassette"]) == ("replayed", "above")
    assert (entry["base"], entry["interaction"]) == ("below", 0)
    assert (hit["recording"]["cassette"], hit["recording"]["index"]) == ("below", 0)
    assert "one" in json.dumps(call)
    assert missed["entry"]["nearest"][0]["base"] == "below"
    assert missed["nearest"]["index"] == 0
