"""Cassettes and interactions compared, as the command line does it."""

import json
from typing import Any

import pytest

from tapeway.cli.cassette.diff import compare_places
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.inspection.pairing import diff_document
from tapeway.paging import CassetteRef
from tapeway.ports import CassetteStore
from tapeway.settings.options import Settings
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.admin.admin_and_proxy import world
from tests.conversations.recorded_calls import CHAT, call, chat, user

HEAD = CassetteHead("then", "run")
PATH = "/api/v1/cassettes/a/comparison"


def made(at: int, question: str, answer: str, **more: object) -> Interaction:
    value = {
        "id": f"chatcmpl-{at}abcdefghij",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}}],
        **more,
    }
    return call(at, CHAT, {"model": "m", "messages": [user(question)]}, value)


FIRST = (
    made(0, "same", "x"),
    made(1, "changed", "before"),
    made(2, "gone", "x"),
    chat(3, [user("a"), user("b")], "y"),
)
SECOND = (
    made(0, "new", "x"),
    made(5, "same", "x"),
    made(6, "changed", "after"),
    chat(7, [user("a"), user("b")], "y"),
)


async def filled(store: CassetteStore) -> None:
    await store.save("a", StoredCassette(HEAD, FIRST[:3]))
    await store.save("b", StoredCassette(HEAD, SECOND[1:3]))


async def test_recordings_are_aligned_by_request(store: CassetteStore) -> None:
    async with world(store=store) as found:
        await filled(store)
        compared = await found.got(f"{PATH}?other=b")

    assert compared["names"] == ["a", "b"]
    states = [(row["first"] is None, row["state"]) for row in compared["rows"]]
    assert sorted({state for _, state in states}) == ["alike", "different", "only_first"]
    (changed,) = compared["different"]
    (difference,) = changed["differences"]
    assert (difference["first"], difference["second"]) == ("before", "after")
    assert difference["steps"][0] == "response"
    assert difference["recorded_steps"] is None
    assert [interaction["index"] for interaction in compared["only_first"]] == [2]
    assert compared["rows_left_out"] == 0


async def test_what_only_the_second_has_stands_where_it_was_asked() -> None:
    store = MemoryStore()
    async with world(store=store) as found:
        await store.save("a", StoredCassette(HEAD, (FIRST[0], FIRST[3])))
        await store.save("b", StoredCassette(HEAD, (SECOND[0], SECOND[1], SECOND[3])))
        compared = await found.got(f"{PATH}?other=b")

    assert [row["state"] for row in compared["rows"]] == ["only_second", "alike", "equal"]


async def test_it_says_what_the_command_says(tmp_path: Any) -> None:
    store = FileStore(tmp_path)
    async with world(store=store) as found:
        await filled(store)
        compared = await found.got(f"{PATH}?other=b")

    one, other = [CassetteRef(FileStore(tmp_path), name, name) for name in ("a", "b")]
    settings = Settings(store=f"file:{tmp_path}", upstream="http://service.invalid")
    said: Any = diff_document(await compare_places(settings, one, other, headers=False))
    for pair in compared["different"]:
        for difference in pair["differences"]:
            del difference["steps"], difference["recorded_steps"]
    assert {name: compared[name] for name in said} == json.loads(json.dumps(said))


async def test_two_interactions_are_compared(store: CassetteStore) -> None:
    async with world(store=store) as found:
        await filled(store)
        second = (await found.got("/api/v1/cassettes/b/titles"))["titles"][1]["index"]
        compared = await found.got(f"{PATH}?other=b&index=1&other_index={second}")
        same = await found.got(f"{PATH}?index=1")

    assert compared["rows"] == [{"first": 1, "second": second, "state": "different"}]
    assert compared["different"][0]["differences"][0]["first"] == "before"
    assert (same["equal"], same["different"]) == (1, [])


async def test_counts_go_beyond_what_is_listed() -> None:
    store = MemoryStore()
    sides = [
        [made(at, f"question {at}", answer) for at in range(1003)]
        + [made(2000 + at, f"only in {answer} {at}", answer) for at in range(more)]
        for answer, more in (("before", 1001), ("after", 0))
    ]
    for name, items in zip("ab", sides, strict=True):
        await store.save(name, StoredCassette(HEAD, tuple(items)))
    async with world(store=store) as found:
        compared = await found.got(f"{PATH}?other=b")

    assert compared["counts"] == {"different": 1003, "only_first": 1001, "only_second": 0}
    assert [len(compared[name]) for name in ("different", "only_first")] == [1000, 1000]


async def test_events_tell_how_far_a_comparison_has_come(
    store: CassetteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeway.admin.handlers.inspection.comparison.LOOK_S", 0.0)
    async with world(store=store) as found:
        await filled(store)
        compared = await found.got(f"{PATH}?other=b")
        response = await found.call("GET", f"{PATH}/events?other=b")
        events = [block.split("\n") for block in (await response.text()).split("\n\n")[:-1]]
        refused = await found.call("GET", f"{PATH}/events?other=none")

    *progress, (last, data) = [(event, json.loads(data[5:])) for event, data in events]
    assert (response.content_type, refused.status) == ("text/event-stream", 404)
    assert (last, data) == ("event: comparison", compared)
    assert progress[0] == ("event: progress", {"step": "read", "done": 0, "of": 5})
    assert all(each["done"] <= each["of"] for _, each in progress)


async def test_headers_count_if_they_are_asked_for() -> None:
    store = MemoryStore()
    plain = chat(0, [user("a")], "x")
    other = call(
        *(0, CHAT, {"model": "m", "messages": [user("a")]}, plain.response.body),
        more=((b"x-served-by", b"b"),),
    )
    await store.save("a", StoredCassette(HEAD, (plain,)))
    await store.save("b", StoredCassette(HEAD, (other,)))
    async with world(store=store) as found:
        without = await found.got(f"{PATH}?other=b")
        compared = await found.got(f"{PATH}?other=b&headers=true")

    assert without["equal"] == 1
    assert [row["state"] for row in compared["rows"]] == ["different"]


@pytest.mark.parametrize("query", ["other=none", "index=9", "other=b&index=0&other_index=99"])
async def test_what_is_not_there_is_404(open_world: Any, query: str) -> None:
    for name in "ab":
        await open_world.ask(cassette=name)

    response = await open_world.call("GET", f"{PATH}?{query}")

    assert response.status == 404


async def test_a_cassette_with_a_base_is_compared_as_one_run(store: CassetteStore) -> None:
    base: dict[str, Json] = {"base": {"cassette": "a", "until": 1}}
    lost: dict[str, Json] = {"base": {"cassette": "no"}}
    async with world(store=store) as found:
        await filled(store)
        await store.save("branch", StoredCassette(CassetteHead("then", "run", base), SECOND[:1]))
        compared = await found.got(f"{PATH}?other=branch")
        await store.save("lost", StoredCassette(CassetteHead("then", "run", lost)))
        missing = await found.call("GET", f"{PATH}?other=lost")

    assert compared["places"] == [None, [["a", 0], ["branch", 0]]]
    assert [(row["first"], row["second"], row["state"]) for row in compared["rows"]] == [
        (0, 0, "equal"),
        (1, 1, "different"),
        (2, None, "only_first"),
    ]
    assert missing.status == 500
