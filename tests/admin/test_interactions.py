"""Reading the interactions of a cassette."""

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.stores.memory import MemoryStore
from tests.admin.world import World, world

ONE = "/api/v1/cassettes/default/interactions"


@pytest.fixture(params=[True, False], ids=["loaded", "ejected"])
async def loaded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def _recorded(found: World, count: int, *, loaded: bool) -> None:
    for number in range(count):
        await found.ask(f"/v1/{number}")
    if not loaded:
        await found.done("POST", "/api/v1/eject")


async def test_an_interaction_is_shown_as_in_its_document(open_world: World, loaded: bool) -> None:
    await _recorded(open_world, 2, loaded=loaded)

    document = await open_world.got("/api/v1/cassettes/default")
    page = await open_world.got(ONE)

    assert page == {"interactions": document["interactions"], "next": None}
    for index in (0, 1):
        assert await open_world.got(f"{ONE}/{index}") == document["interactions"][index]


async def test_pages_hold_each_interaction_once(open_world: World, loaded: bool) -> None:
    await _recorded(open_world, 5, loaded=loaded)

    seen: list[int] = []
    after = ""
    for _ in range(3):
        page = await open_world.got(f"{ONE}?limit=2{after}")
        seen += [each["index"] for each in page["interactions"]]
        after = f"&after={page['next']}"

    assert (seen, page["next"]) == ([0, 1, 2, 3, 4], None)
    assert (await open_world.got(f"{ONE}?limit=5"))["next"] is None
    assert (await open_world.got(f"{ONE}?after=99"))["interactions"] == []


async def test_an_index_names_the_same_recording_after_another_was_replaced(
    open_world: World,
) -> None:
    await open_world.ask("/v1/a")
    await open_world.ask("/v1/b")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "record"})
    again = await open_world.ask("/v1/a")

    page = await open_world.got(ONE)

    index = int(again.headers["Tapeway-Interaction"])
    assert [each["index"] for each in page["interactions"]] == [1, index]
    assert (await open_world.got(f"{ONE}/{index}"))["request"]["url"].endswith("/v1/a")
    assert (await open_world.call("GET", f"{ONE}/0")).status == 404


@pytest.mark.parametrize("index", ["7", "999999999999999"])
async def test_an_index_that_is_not_there_is_a_404(
    open_world: World, loaded: bool, index: str
) -> None:
    await _recorded(open_world, 1, loaded=loaded)

    response = await open_world.call("GET", f"{ONE}/{index}")

    assert response.status == 404
    assert (await response.json())["error"]["code"] == "no_interaction"


@pytest.mark.parametrize("index", ["x", "-1", "1.0", "%D9%A1", "0x1", "9" * 5000])
async def test_an_index_that_is_none_is_a_400(open_world: World, index: str) -> None:
    await open_world.ask()

    response = await open_world.call("GET", f"{ONE}/{index}")

    assert response.status == 400
    assert (await response.json())["error"]["code"] == "bad_index"


async def test_a_body_that_is_no_text_is_shown_as_base64(open_world: World) -> None:
    open_world.service.headers = ((b"Content-Type", b"image/png"),)
    open_world.service.body = b"\x89PNG\r\n\x1a\n\x00\xff<script>"
    await open_world.ask()

    shown = await open_world.got(f"{ONE}/0")

    assert shown["response"]["body_b64"] == "iVBORw0KGgoA/zxzY3JpcHQ+"


async def test_an_integer_of_any_size_is_shown_exactly(open_world: World) -> None:
    open_world.service.body = b'{"id":123456789012345678901234567890}'
    await open_world.ask()

    assert b"123456789012345678901234567890" in await open_world.octets(f"{ONE}/0")


async def test_other_kinds_are_shown_as_they_were_written() -> None:
    store = MemoryStore()
    document: dict[str, Json] = {
        "index": 9,
        "kind": "tool",
        "request": {"name": "add"},
        "response": {"result": 3},
    }
    held = ForeignInteraction(0, document)
    await store.save("default", StoredCassette(CassetteHead("then", "run"), (held,)))

    async with world(store=store) as found:
        shown = await found.got(f"{ONE}/0")

    assert shown == document | {"index": 0}
