"""A miss is accepted: its cassette has the rule from then on, in this process and the next."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tapeway.errors import StoreFull
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.admin.world import World, world


async def missed(found: World, path: str = "/v1/models?page=2", *, record: bool = True) -> Any:
    """The journal's entry of a request that differs from the one recorded."""
    if record:
        await found.ask("/v1/models?page=1")
        await found.done("PUT", "/api/v1/mode", {"mode": "replay"})
    assert (await found.ask(path)).headers["Tapeway-Outcome"] == "miss"
    return (await found.got("/api/v1/journal?outcome=miss"))["entries"][0]


async def outcome(found: World, path: str = "/v1/models?page=2") -> str:
    return (await found.ask(path)).headers["Tapeway-Outcome"]


async def refused(found: World, id: str, sent: object = None) -> tuple[int, str]:
    response = await found.call("POST", f"/api/v1/journal/{id}/accept", sent)
    return response.status, (await response.json())["error"]["code"]


async def test_what_was_suggested_is_in_force_when_it_is_accepted(open_world: World) -> None:
    entry = await missed(open_world)
    assert entry["suggestion"] == 'ignore = ["query.page"]'

    accepted = await open_world.done("POST", f"/api/v1/journal/{entry['id']}/accept")

    assert accepted == {
        "cassette": "default",
        "rules": {"ignore": ["query.page"]},
        "suggestion": 'ignore = ["query.page"]',
    }
    assert await outcome(open_world) == "replayed"
    assert await outcome(open_world, "/v1/models?page=2&size=3") == "miss"


async def test_an_entry_of_a_miss_shows_the_nearest_recording(open_world: World) -> None:
    entry = await missed(open_world)

    difference = {"path": "query.page", "recorded": "1", "requested": "2"}
    assert entry["nearest"] == [{"index": 0, "differences": [difference], "more": 0}]
    assert entry["message"].endswith("; nearest #0 differs at query.page")


async def test_a_rule_of_ones_own_can_be_accepted_instead(open_world: World) -> None:
    entry = await missed(open_world)
    rule = {"normalise": ["epoch"], "patterns": {"page": "[0-9]+"}}

    accepted = await open_world.done(
        "POST", f"/api/v1/journal/{entry['id']}/accept", {"rule": rule}
    )

    assert accepted["rules"] == rule
    assert accepted["suggestion"] == 'normalise = ["epoch"]\npatterns = { "page" = "[0-9]+" }'
    assert await outcome(open_world, "/v1/models?page=77") == "replayed"


async def test_to_accept_again_changes_nothing(open_world: World) -> None:
    entry = await missed(open_world)
    path = f"/api/v1/journal/{entry['id']}/accept"

    assert await open_world.done("POST", path) == await open_world.done("POST", path)
    assert len(await open_world.broker.store.names()) == 1


async def test_rules_accepted_at_the_same_time_are_all_in_force(open_world: World) -> None:
    page = await missed(open_world)
    size = await missed(open_world, "/v1/models?page=1&size=2", record=False)

    await asyncio.gather(
        *(open_world.done("POST", f"/api/v1/journal/{each['id']}/accept") for each in (page, size))
    )

    assert await outcome(open_world, "/v1/models?page=3&size=3") == "replayed"


async def test_it_holds_in_the_next_process(tmp_path: Path) -> None:
    async with world(store=FileStore(tmp_path)) as found:
        entry = await missed(found)
        await found.done("POST", f"/api/v1/journal/{entry['id']}/accept")
    async with world(store=FileStore(tmp_path), mode="replay") as found:
        assert await outcome(found) == "replayed"


async def test_it_holds_in_a_process_that_finds_the_store_as_it_was_at_the_answer(
    tmp_path: Path,
) -> None:
    async with world(mode="record", store=FileStore(tmp_path)) as found:
        for _ in range(2):
            # The second take's recording replaces the first's: numbers are no positions any more.
            await found.ask("/v1/models?page=1")
            await found.done("POST", "/api/v1/rewind")
        entry = await missed(found)
        await found.done("POST", f"/api/v1/journal/{entry['id']}/accept")
        left = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    killed = tmp_path / "killed"
    killed.mkdir()
    for name, octets in left.items():
        (killed / name).write_bytes(octets)
    async with world(mode="replay", store=FileStore(killed)) as found:
        assert await outcome(found) == "replayed"


async def test_a_rule_that_cannot_be_kept_is_an_error(
    open_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreFull("there is no room")

    entry = await missed(open_world)
    monkeypatch.setattr(MemoryStore, "save", full)

    assert await refused(open_world, entry["id"]) == (507, "recording_failed")
    assert await outcome(open_world) == "miss"


async def test_what_cannot_be_accepted_is_refused_with_a_reason(open_world: World) -> None:
    entry = await missed(open_world)
    hit = (await open_world.got("/api/v1/journal?outcome=recorded"))["entries"][0]
    elsewhere = await missed(open_world, "/v2/other", record=False)

    assert await refused(open_world, "unknown") == (404, "no_entry")
    assert await refused(open_world, hit["id"]) == (409, "no_suggestion")
    assert await refused(open_world, elsewhere["id"]) == (409, "no_suggestion")
    unreadable = ["{}", '{"ignore": "a"}', '{"ignored": []}', '{"patterns": {"a": "(?=b)"}}']
    for rule in map(json.loads, unreadable):
        assert await refused(open_world, entry["id"], {"rule": rule}) == (400, "bad_rule")
    assert await refused(open_world, entry["id"], {"rule": []}) == (400, "bad_request")
    await open_world.done("POST", "/api/v1/eject")
    assert await refused(open_world, entry["id"]) == (409, "not_inserted")
