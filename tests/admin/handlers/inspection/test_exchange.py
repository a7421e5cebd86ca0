"""Interactions for reading, from every store."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tests.admin.admin_and_proxy import World, world
from tests.conversations.recorded_calls import CHAT, JSON_TYPE, call

HEAD = CassetteHead("2026-01-02T03:04:05+00:00", "a-run")
NAME = "/api/v1/cassettes/default"
WORDS = ["Hel", "lo ", "wor", "ld"]


def answer(*parts: object) -> list[bytes]:
    return [b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts]


def streamed(index: int = 0) -> Interaction:
    events = answer(*[{"choices": [{"index": 0, "delta": {"content": word}}]} for word in WORDS])
    made = call(index, CHAT, {"model": "m", "stream": True, "messages": []}, b"")
    chunks = [(data, 100.0 * (at + 1)) for at, data in enumerate(events)]
    head = ResponseHead(200, "OK", ((b"Content-Type", b"text/event-stream"),), "chunked")
    return Interaction(
        index,
        made.request,
        Response.of_chunks(head, chunks, verdict="complete"),
        latency_ms=400.0,
        usage={"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9},
        metadata={"provider": "openai", "endpoint": "chat.completions", "model": "m"},
    )


@pytest.fixture
async def stored_world(store: CassetteStore) -> AsyncIterator[World]:
    async with world(store=store, mode="replay") as found:
        yield found


async def kept(store: CassetteStore, *items: Interaction | ForeignInteraction) -> None:
    for item in items:
        await store.append("default", HEAD, Recording(item))


async def test_a_stream_is_read_as_text_and_in_time(
    stored_world: World, store: CassetteStore
) -> None:
    await kept(store, streamed())

    found = await stored_world.got(f"{NAME}/interactions/0/view")

    assert [response["parts"][0]["text"] for response in found["answers"]] == ["Hello world"]
    assert [event["at_ms"] for event in found["timeline"]["events"]] == [100.0, 200.0, 300.0, 400.0]
    assert found["timeline"]["tokens_per_second"] == 20.0
    assert (found["model"], found["usage"]["total_tokens"]) == ("m", 9)
    assert found["request"]["body"]["kind"] == "json"
    assert json.loads(found["request"]["body"]["text"])["model"] == "m"
    assert found["response"]["status"] == 200
    assert found["response"]["headers"] == [["Content-Type", "text/event-stream"]]
    assert found["document"] is None


async def test_what_is_no_llm_call_has_no_answers(
    stored_world: World, store: CassetteStore
) -> None:
    request = Request("default", "GET", "/a", (), b"")
    response = Response(ResponseHead(200, headers=(JSON_TYPE,)), b'{"a":1}', 2.0)
    await kept(store, Interaction(0, request, response))

    found = await stored_world.got(f"{NAME}/interactions/0/view")

    assert (found["answers"], found["request"]["body"]["kind"]) == ([], "empty")
    assert found["timeline"]["events"] == []


async def test_an_interaction_of_another_kind_shows_its_document(
    stored_world: World, store: CassetteStore
) -> None:
    document: dict[str, Json] = {
        "index": 0,
        "kind": "tool",
        "boundary": "f",
        "request": {"name": "f", "args": {}},
        "response": 1,
    }
    await kept(store, ForeignInteraction(0, document))

    found = await stored_world.got(f"{NAME}/interactions/0/view")

    assert (found["kind"], found["request"], found["timeline"]) == ("tool", None, None)
    assert found["document"]["boundary"] == "f"


async def test_a_large_body_is_read_from_its_file(tmp_path: Any) -> None:
    store = FileStore(tmp_path)
    async with world(store=store, mode="auto") as found:
        found.service.body = b'{"text":"' + b"x" * (2 * 2**20 - 9) + b'"}'
        await found.ask("/v1/small")
        small = await found.got(f"{NAME}/interactions/0/view")

    body = small["response"]["body"]
    assert (body["kind"], body["cut"], body["size"]) == ("json", True, 2 * 2**20 + 2)
    assert len(body["text"]) == 2**20
    assert len(body["sha256"]) == 64


async def test_the_list_has_no_bodies(stored_world: World, store: CassetteStore) -> None:
    await kept(store, *[streamed(at) for at in range(5)])

    first = await stored_world.got(f"{NAME}/titles?limit=2")
    second = await stored_world.got(f"{NAME}/titles?limit=9&after={first['next']}")

    titles = first["titles"] + second["titles"]
    assert [title["index"] for title in titles] == [0, 1, 2, 3, 4]
    assert second["next"] is None
    assert titles[0] | {"summary": ""} == {
        "index": 0,
        "kind": "http",
        "summary": "",
        "route": "openai",
        "method": "POST",
        "path": CHAT,
        "status": 200,
        "failure": None,
        "content_type": "text/event-stream",
        "streamed": True,
        "latency_ms": 400.0,
        "first_byte_ms": 100.0,
        "request_bytes": len(streamed().request.body),
        "response_bytes": len(streamed().response.body),
        "model": "m",
        "usage": {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9},
        "unmarked": False,
        "tags": [],
        "asked": "model: m, stream: true, messages:",
        "answered": titles[0]["answered"],
        "unused": titles[0]["unused"],
    }


async def test_a_file_is_read_once_for_pages_searches_and_views_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read = FileStore(tmp_path), list[str]()
    load = store.load

    async def noted(name: str, *, writable: bool) -> StoredCassette | None:
        read.append(name)
        return await load(name, writable=writable)

    monkeypatch.setattr(store, "load", noted)
    async with world(store=store, mode="replay") as found:
        await store.save("large", StoredCassette(HEAD, tuple(map(streamed, range(7)))))
        where = "/api/v1/cassettes/large/titles"
        pages = [
            await found.got(f"{where}?limit=3{after}") for after in ("", "&after=2", "&after=5")
        ]
        await asyncio.gather(*[found.got(f"{where}?after={at}") for at in range(5)])
        searched = await found.got(f"{where}?text={CHAT[1:]}")
        viewed = await found.got("/api/v1/cassettes/large/interactions/3/view")

        assert (len(searched["titles"]), viewed["index"]) == (7, 3)
        assert [[title["index"] for title in page["titles"]] for page in pages] == [
            [0, 1, 2],
            [3, 4, 5],
            [6],
        ]
        assert [(page["next"], page["total"]) for page in pages] == [(2, 7), (5, 7), (None, 7)]
        assert read == ["large"]
        await store.save("large", StoredCassette(HEAD, (streamed(),)))
        changed = await found.got(where)
        assert [title["index"] for title in changed["titles"]] == [0]
        assert (await found.call("GET", "/api/v1/cassettes/none/titles")).status == 404


async def test_a_list_is_searched_in_requests_and_answers_of_every_store(
    stored_world: World, store: CassetteStore
) -> None:
    await kept(store, *[streamed(at) for at in range(3)])
    where = f"{NAME}/titles"

    in_answer = await stored_world.got(f"{where}?text=hello%20WOR&order=largest&limit=2")
    nothing = await stored_world.got(f"{where}?text=giraffe")

    assert (in_answer["found"], in_answer["next"], in_answer["total"]) == ([0, 1, 2], 1, 3)
    assert (nothing["found"], nothing["titles"], nothing["total"]) == ([], [], 3)


async def test_what_is_recorded_later_is_found(open_world: World) -> None:
    await open_world.ask("/v1/first?word=early")
    assert (await open_world.got(f"{NAME}/titles?text=early"))["found"] == [0]
    await open_world.ask("/v1/second?word=late")

    assert (await open_world.got(f"{NAME}/titles?text=late"))["found"] == [1]
    assert (await open_world.got(f"{NAME}/titles?show=unused"))["found"] == []


async def test_the_list_of_a_loaded_cassette_says_what_the_take_has_not_used(
    open_world: World,
) -> None:
    await open_world.ask("/v1/a")
    await open_world.ask("/v1/b")
    await open_world.done("POST", "/api/v1/rewind")
    await open_world.ask("/v1/b")

    found = await open_world.got(f"{NAME}/titles")

    assert [title["unused"] for title in found["titles"]] == [True, False]
    assert found["total"] == 2


async def test_an_interaction_that_is_not_there_is_404(open_world: World) -> None:
    await open_world.ask()

    response = await open_world.call("GET", f"{NAME}/interactions/7/view")

    assert response.status == 404
    assert (await response.json())["error"]["code"] == "no_interaction"
