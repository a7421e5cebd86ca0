"""The journal searched for a text, part by part."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tapeway.admin.handlers.inspection import search
from tapeway.core.model.interaction import AnyInteraction
from tapeway.inspection import search as texts
from tapeway.ports import CassetteStore
from tests.admin.admin_and_proxy import World, world


@pytest.fixture
async def stored_world(store: CassetteStore) -> AsyncIterator[World]:
    async with world(store=store) as found:
        yield found


async def ask(world: World, text: str, cassette: str = "default") -> None:
    headers = {"Tapeway-Cassette": cassette}
    async with world.http.post(f"{world.proxy}/v1/x", json={"q": text}, headers=headers) as got:
        await got.read()


async def said(world: World, query: str) -> list[str]:
    """The bodies' words of all entries that are found, page after page."""
    found: list[Any] = []
    page = await world.got(f"/api/v1/journal?{query}")
    found += page["entries"]
    while page["next"] is not None:
        page = await world.got(f"/api/v1/journal?{query}&after={page['next']}")
        found += page["entries"]
    return [f"{entry['outcome']} {entry['interaction']}" for entry in found]


async def test_recordings_and_misses_are_found_by_what_they_say(stored_world: World) -> None:
    await ask(stored_world, "a lion")
    await ask(stored_world, "a giraffe")
    await stored_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await ask(stored_world, "a lion")
    await ask(stored_world, "another Lion")

    assert await said(stored_world, "text=LION") == ["miss None", "replayed 0", "recorded 0"]
    assert await said(stored_world, "text=lion&negate=true") == ["recorded 1"]
    assert await said(stored_world, "text=lion&outcome=replayed") == ["replayed 0"]
    assert await said(stored_world, "text=tiger") == []
    assert await said(stored_world, "route=default&outcome=miss") == ["miss None"]
    assert await said(stored_world, "route=openai") == []


async def test_the_answer_is_searched_too(stored_world: World) -> None:
    stored_world.service.body = json.dumps({"text": "Grüße"}).encode()
    await ask(stored_world, "x")

    assert await said(stored_world, "text=gr%C3%BC%C3%9Fe") == ["recorded 0"]


async def test_a_call_searches_a_part_and_says_how_far_it_came(
    open_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_ENTRIES", 4)
    monkeypatch.setattr(search, "BATCH", 2)
    await ask(open_world, "a giraffe")
    for _ in range(9):
        await ask(open_world, "a lion")

    first = await open_world.got("/api/v1/journal?text=giraffe")
    second = await open_world.got(f"/api/v1/journal?text=giraffe&after={first['next']}")
    third = await open_world.got(f"/api/v1/journal?text=giraffe&after={second['next']}")

    assert (first["entries"], first["searched"], first["left"]) == ([], 4, 6)
    assert (second["entries"], second["searched"], second["left"]) == ([], 4, 2)
    assert [entry["interaction"] for entry in third["entries"]] == [0]
    assert (third["searched"], third["left"], third["next"]) == (2, 0, None)


async def test_a_full_page_goes_on_after_its_last_entry(open_world: World) -> None:
    for number in range(5):
        await ask(open_world, f"lion {number}")

    assert len(await said(open_world, "text=lion&limit=2")) == 5


async def test_bodies_end_a_call_by_their_bytes(
    open_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_BYTES", 3000)
    for number in range(6):
        await ask(open_world, f"{number} {'x' * 1000}")

    first = await open_world.got("/api/v1/journal?text=giraffe")

    assert 0 < first["searched"] < 6
    assert first["searched"] + first["left"] == 6


async def test_recordings_of_a_cassette_that_was_ejected_are_read_once(
    stored_world: World,
) -> None:
    await ask(stored_world, "a giraffe", cassette="other")
    await ask(stored_world, "a lion", cassette="other")
    await stored_world.done("POST", "/api/v1/eject", {"cassette": "other"})

    assert await said(stored_world, "text=giraffe") == ["recorded 0"]


async def test_a_further_search_reads_recordings_only_after_a_change(
    stored_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = texts.searchable_text

    def noted(item: AnyInteraction) -> str:
        read.append(item.index)
        return whole(item)

    monkeypatch.setattr(texts, "searchable_text", noted)
    await ask(stored_world, "a lion")
    await ask(stored_world, "a giraffe")

    assert await said(stored_world, "text=giraffe") == ["recorded 1"]
    assert await said(stored_world, "text=LION") == ["recorded 0"]
    assert await said(stored_world, "text=tiger") == []
    assert sorted(read) == [0, 1]

    where = "/api/v1/cassettes/default/interactions/0"
    stored = await stored_world.got(where)
    stored["response"] |= {"json": {"text": "a tiger"}}
    await stored_world.done("PUT", where, stored)

    assert await said(stored_world, "text=tiger") == ["recorded 0"]
    assert sorted(read) == [0, 0, 1, 1]


async def test_a_cassette_that_is_gone_leaves_the_entry(open_world: World) -> None:
    await ask(open_world, "a giraffe")
    await open_world.done("DELETE", "/api/v1/cassettes/default")

    assert await said(open_world, "text=giraffe") == []
    assert await said(open_world, "text=%2Fv1%2Fx") == ["recorded 0"]


async def test_without_a_text_nothing_is_searched(open_world: World) -> None:
    await ask(open_world, "a lion")

    found = await open_world.got("/api/v1/journal?negate=true")

    assert (len(found["entries"]), found["searched"], found["left"]) == (1, None, None)


@pytest.mark.parametrize("text", ["", "x" * 201])
async def test_a_text_has_one_to_two_hundred_characters(open_world: World, text: str) -> None:
    response = await open_world.call("GET", f"/api/v1/journal?text={text}")

    assert response.status == 400
