"""Reading the interactions of a cassette, appending to them once each, and editing them one by one."""

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.engine.editing.changes import MOST_KEYS
from tapeway.errors import StoreFull
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.sqlite import writer
from tapeway.stores.sqlite.store import SqliteStore
from tests.admin.admin_and_proxy import World, world
from tests.admin.handlers.test_import_export import SECRET, cassette, put, said

ONE = "/api/v1/cassettes/default/interactions"
CASSETTE = "/api/v1/cassettes/one"
ALL = f"{CASSETTE}/interactions"


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
        seen += [interaction["index"] for interaction in page["interactions"]]
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
    assert [interaction["index"] for interaction in page["interactions"]] == [1, index]
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


async def append(
    found: World, *interactions: object, key: str = "", query: str = "", **more: object
) -> tuple[int, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    sent = {"interactions": list(interactions), **more}
    response = await found.call("POST", ALL + query, sent, headers=headers)
    return response.status, await response.json()


async def texts(found: World) -> list[str]:
    return [
        interaction["response"]["text"]
        for interaction in (await found.got(CASSETTE))["interactions"]
    ]


async def test_what_is_appended_is_durable_and_replayed_at_once(tmp_path: Path) -> None:
    async with world(store=FileStore(tmp_path)) as found:
        await found.ask("/v1/a", cassette="one")
        status, answer = await append(found, said("one", "/v1/b"), said("two", "/v1/b"))
        journal = (tmp_path / "one.journal.jsonl").exists() or list(tmp_path.iterdir())

        assert status == 200
        assert [interaction["index"] for interaction in answer["interactions"]] == [1, 2]
        assert journal
        first = await found.ask("/v1/b", cassette="one")
        second = await found.ask("/v1/b", cassette="one")
    assert [first.headers["Tapeway-Outcome"], await first.text(), await second.text()] == [
        "replayed",
        "one",
        "two",
    ]
    async with world(store=FileStore(tmp_path)) as found:
        assert [interaction["index"] for interaction in (await found.got(ALL))["interactions"]] == [
            0,
            1,
            2,
        ]


async def test_a_cassette_begins_with_what_its_first_interactions_say(store: CassetteStore) -> None:
    head = {"created_at": "then", "run_id": "their run", "meta": {"suite": "x"}}
    async with world(store=store) as found:
        await append(found, said("one"), head=head)
        await append(found, said("two"), head={**head, "run_id": "another"})
        held = await found.got(CASSETTE)

    assert {name: held[name] for name in head} == head
    assert len(held["interactions"]) == 2


async def test_the_same_key_and_body_is_done_once(store: CassetteStore) -> None:
    async with world(store=store) as found:
        first = await append(found, said("one"), key="k-1")
        again = await append(found, said("one"), key="k-1")
        other = await append(found, said("one"), key="k-2")
        reused = await append(found, said("two"), key="k-1")

        assert first == again
        assert other[1]["interactions"][0]["index"] == 1
        assert (reused[0], reused[1]["error"]["code"]) == (422, "idempotency_key_reused")
        assert await texts(found) == ["one", "one"]


async def test_many_at_once_with_one_key_are_one(open_world: World) -> None:
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(append(open_world, said("one"), key="k")) for _ in range(20)]

    assert {task.result()[1]["interactions"][0]["index"] for task in asked} == {0}
    assert await texts(open_world) == ["one"]


async def test_after_a_new_start_what_says_its_index_is_not_appended_again(tmp_path: Path) -> None:
    document = said("one") | {"index": 0}
    for _ in range(2):
        async with world(store=FileStore(tmp_path)) as found:
            _, answer = await append(found, document, key="k-1")
            assert answer["interactions"][0]["index"] == 0
            assert await texts(found) == ["one"]


class Filling(MemoryStore):
    """Has room for one interaction, until there is more."""

    room = 1

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        if self.room == 0:
            raise StoreFull("no room")
        self.room -= 1
        await super().append(name, head, recording)


async def test_what_failed_half_way_goes_on_with_the_same_key() -> None:
    store = Filling()
    async with world(store=store) as found:
        three = [said("one"), said("two"), said("three")]
        failed = await append(found, *three, key="k")
        assert failed[0] == 507
        store.room = 10
        status, answer = await append(found, *three, key="k")

        assert status == 200
        assert len({interaction["index"] for interaction in answer["interactions"]}) == 3
        assert sorted(await texts(found)) == ["one", "three", "two"]


async def test_keys_are_remembered_up_to_a_bound_the_page_names() -> None:
    page = (Path(__file__).parents[3] / "docs" / "admin-api.md").read_text(encoding="utf-8")

    assert f"The last {MOST_KEYS:,} keys" in page


async def test_an_index_is_taken_where_nobody_ever_had_it(open_world: World) -> None:
    async def index(wanted: int | None, text: str = "x") -> int:
        document = said(text) if wanted is None else said(text) | {"index": wanted}
        _, answer = await append(open_world, document)
        return int(answer["interactions"][0]["index"])

    assert [await index(number) for number in (7, 3, 3, 7, None, 0, 9, 10**15 - 1)] == [
        *(7, 3, 8, 9, 10, 0, 11),
        10**15 - 1,
    ]


async def test_a_superseded_one_is_found_where_it_moved(open_world: World) -> None:
    await put(open_world, cassette(said("a", "/a"), said("b", "/b"), said("c", "/c")))
    held = {}
    for index in range(3):
        held[index] = (await open_world.call("GET", f"{ALL}/{index}")).headers["ETag"].strip('"')
    await open_world.done("DELETE", f"{ALL}/0")

    status, _ = await append(
        open_world,
        said("b again", "/b"),
        supersedes=[
            [{"index": 1, "sha256": held[1]}, {"index": 0, "sha256": held[0]}],
        ],
    )

    assert status == 200
    assert await texts(open_world) == ["b again", "c"]


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({}, 400, "bad_request"),
        ({"interactions": []}, 400, "bad_request"),
        ({"interactions": [1]}, 400, "bad_request"),
        ({"interactions": [{"kind": "http"}]}, 422, "bad_cassette"),
        ({"interactions": [said("x") | {"index": -1}]}, 400, "bad_request"),
        ({"interactions": [said("x") | {"index": True}]}, 400, "bad_request"),
        ({"interactions": [said("x")], "supersedes": []}, 400, "bad_request"),
        ({"interactions": [said("x")], "supersedes": [[{"index": 0}]]}, 400, "bad_request"),
        ({"interactions": [said("x"), said(SECRET)]}, 422, "shows_secrets"),
        (
            {
                "interactions": [
                    said("x"),
                    {
                        **said("x"),
                        "response": {
                            "status_code": 200,
                            "headers": {},
                            "body_file": {"sha256": "0" * 64, "size": 5},
                        },
                    },
                ]
            },
            422,
            "body_missing",
        ),
    ],
)
async def test_what_cannot_be_appended_is_refused_as_a_whole(
    open_world: World, sent: object, status: int, code: str
) -> None:
    response = await open_world.call("POST", ALL, sent)

    assert (response.status, (await response.json())["error"]["code"]) == (status, code)
    assert SECRET not in await response.text()
    assert await open_world.broker.store.stat("one") is None


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "kä"])
async def test_a_key_that_is_none_is_a_400(open_world: World, key: str) -> None:
    answer = await open_world.raw(
        b"POST /api/v1/cassettes/one/interactions HTTP/1.1\r\nHost: localhost\r\n"
        b"Connection: close\r\nIdempotency-Key: %b\r\nContent-Length: 0\r\n\r\n" % key.encode()
    )

    assert answer.startswith(b"HTTP/1.1 400 "), answer


@pytest.mark.parametrize("loaded", [True, False])
async def test_an_edited_answer_is_replayed(store: CassetteStore, loaded: bool) -> None:
    async with world(store=store) as found:
        await put(found, cassette(said("a", "/a"), said("b", "/b"), said("b2", "/b")))
        if loaded:
            await found.ask("/b", cassette="one")
        answer = await found.done("PUT", f"{ALL}/2", said("edited", "/b"))

        assert answer["interaction"]["index"] == 2
        assert await texts(found) == ["a", "b", "edited"]
        expected = ["edited"] if loaded else ["b", "edited"]
        assert [
            await (await found.ask("/b", cassette="one")).text() for _ in expected
        ] == expected, "a turn that was taken stays taken"


def chat(answer: str, *history: tuple[str, str]) -> dict[str, Any]:
    messages = [{"role": role, "content": content} for role, content in history]
    url = "http://service.invalid/v1/chat/completions"
    message = {"role": "assistant", "content": answer}
    return {
        "kind": "http",
        "request": {"method": "POST", "url": url, "json": {"messages": messages}},
        "response": {"status_code": 200, "json": {"choices": [{"index": 0, "message": message}]}},
    }


async def test_an_edit_names_the_requests_that_repeat_the_answer(store: CassetteStore) -> None:
    asked = ("user", "Hi")
    second = chat("Bye.", asked, ("assistant", "Hello."), ("user", "Go"))
    async with world(store=store) as found:
        await put(found, cassette(chat("Hello.", asked), second))

        edited = await found.done("PUT", f"{ALL}/0", chat("Good day.", asked))
        (sentence,) = edited["repeated"]
        assert sentence.startswith("#1: its request repeats the answer of #0 as 'Hello.', and #0")
        again = await found.done("PUT", f"{ALL}/0", chat("Hello.", asked))
        assert "repeated" not in again


async def test_what_was_used_stays_used_when_another_is_removed(store: CassetteStore) -> None:
    async with world(store=store, mode="replay") as found:
        await put(found, cassette(said("a", "/a"), said("b", "/b"), said("c", "/c")))
        await found.ask("/c", cassette="one")
        takes = found.broker.takes
        answer = await found.done("DELETE", f"{ALL}/0")

        assert answer == {"cassette": "one", "interaction": None}
        (report,) = [
            listed
            for listed in (await found.got("/api/v1/report"))["cassettes"]
            if listed["name"] == "one"
        ]
        assert [entry["path"] for entry in report["unused"]] == ["/b"]
        assert found.broker.takes == takes
        miss = await found.ask("/a", cassette="one")
        assert miss.status == 400
        await found.done("POST", "/api/v1/eject", {"cassette": "one", "prune": True})
        assert await texts(found) == ["c"]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_an_edit_of_what_is_not_there_is_a_404(open_world: World, method: str) -> None:
    sent = said("x") if method == "PUT" else None
    none = await open_world.call(method, f"{ALL}/0", sent)
    await put(open_world, cassette(said("a")))
    beyond = await open_world.call(method, f"{ALL}/1", sent)

    assert (await none.json())["error"]["code"] == "no_cassette"
    assert (await beyond.json())["error"]["code"] == "no_interaction"
    assert (none.status, beyond.status) == (404, 404)
    assert await texts(open_world) == ["a"]


async def test_two_editors_do_not_overwrite_each_other(open_world: World) -> None:
    await put(open_world, cassette(said("a")))
    seen = (await open_world.call("GET", f"{ALL}/0")).headers["ETag"]

    first = await open_world.call("PUT", f"{ALL}/0", said("first"), headers={"If-Match": seen})
    second = await open_world.call("PUT", f"{ALL}/0", said("second"), headers={"If-Match": seen})
    gone = await open_world.call("DELETE", f"{ALL}/0", headers={"If-Match": seen})

    assert [answer.status for answer in (first, second, gone)] == [200, 412, 412]
    assert await texts(open_world) == ["first"]
    now = (await open_world.call("GET", f"{ALL}/0")).headers["ETag"].strip('"')
    assert (await first.json())["interaction"]["sha256"] == now


async def test_an_edit_looks_for_secrets_too(open_world: World) -> None:
    await put(open_world, cassette(said("a")))

    refused = await open_world.call("PUT", f"{ALL}/0", said(SECRET))
    redacted = await open_world.call("PUT", f"{ALL}/0?secrets=redact", said(SECRET))

    assert (refused.status, redacted.status) == (422, 200)
    assert SECRET not in json.dumps(await open_world.got(CASSETTE))


async def test_what_was_appended_to_is_kept_from_others_until_it_is_released(
    tmp_path: Path,
) -> None:
    other = FileStore(tmp_path)
    await other.open()
    async with world(store=FileStore(tmp_path)) as found:
        await append(found, said("one") | {"index": 5})
        with pytest.raises(Exception, match="one"):
            await other.load("one", writable=True)
        released = await found.done("POST", f"{CASSETTE}/release")
        held = await other.load("one", writable=True)

        assert released == {"cassette": "one", "released": True}
        assert held is not None
        assert [interaction.index for interaction in held.interactions] == [0]
        again = await found.done("POST", f"{CASSETTE}/release")
        assert again["released"] is False
    await other.close()


async def test_what_is_used_besides_is_not_let_go(open_world: World) -> None:
    await append(open_world, said("one", "/v1/models"))
    await open_world.ask(cassette="one")

    released = await open_world.done("POST", f"{CASSETTE}/release")

    assert released["released"] is False
    assert open_world.broker.is_loaded("one")


async def test_where_something_can_still_be_read_the_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WIPE_MS", 20)
    file = tmp_path / "calls.db"
    async with world(store=SqliteStore(file)) as found:
        await put(found, cassette(said("a", "/a"), said("b", "/b"), said("c", "/c")))
        with closing(apsw.Connection(str(file))) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM recordings").fetchall()
            edited = await found.done("DELETE", f"{ALL}/0")
            removed = await found.done("DELETE", CASSETTE)

    for answer in (edited, removed):
        (said_left,) = answer["left_over"]
        assert "stop all processes that use the file" in said_left
