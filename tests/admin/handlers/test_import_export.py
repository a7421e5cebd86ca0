"""Bringing cassettes in whole, taking them out in several formats, and removing them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tapeway.admin.handlers import import_export
from tapeway.core.model.interaction import Interaction
from tapeway.formats.native import document
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tests.admin.admin_and_proxy import World, world
from tests.admin.example_calls import INTERACTION

ONE = "/api/v1/cassettes/one"
JSON = {"Content-Type": "application/json"}
SECRET = "sk-proj-" + "abcdefghijklmnopqrstuvwxyz0123456789ABCD"
LARGE = b"0123456789abcdef" * 100_000


def cassette(*interactions: object) -> dict[str, object]:
    return {
        "version": "1",
        "created_at": "2026-01-02T03:04:05+00:00",
        "run_id": "a-run",
        "meta": {},
        "interactions": list(interactions),
    }


def said(text: str, path: str = "/v1/models") -> dict[str, Any]:
    return {
        "kind": "http",
        "request": {"method": "GET", "url": f"http://service.invalid{path}", "route": "default"},
        "response": {"status_code": 200, "headers": {}, "text": text},
    }


async def put(found: World, sent: object, **headers: str) -> tuple[int, Any, str | None]:
    data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    response = await found.call("PUT", ONE, data=data, headers={**JSON, **headers})
    return response.status, await response.json(), response.headers.get("ETag")


async def code(found: World, method: str, path: str, **more: Any) -> tuple[int, str]:
    response = await found.call(method, path, **more)
    return response.status, (await response.json()).get("error", {}).get("code", "")


async def test_what_was_exported_comes_back_byte_for_byte(store: CassetteStore) -> None:
    async with world(store=store) as found:
        for path in ("/v1/a", "/v1/b"):
            await found.ask(path, cassette="one")
        await found.done("POST", "/api/v1/eject", {"cassette": "one"})
        before = await found.octets(ONE)
        tag = (await found.call("GET", ONE)).headers["ETag"]
        await found.done("DELETE", ONE)
        status, answer, etag = await put(found, before)

        assert (status, answer["interactions"], answer["replaced"]) == (200, 2, 0)
        assert etag == tag == f'"{answer["sha256"]}"'
        assert await found.octets(ONE) == before
        again = await found.ask("/v1/a", cassette="one")
    assert again.headers["Tapeway-Outcome"] == "replayed"


async def test_a_cassette_that_is_in_is_another_one_from_the_next_request_on(
    store: CassetteStore,
) -> None:
    async with world(store=store) as found:
        await found.ask(cassette="one")
        await put(found, cassette(said("brought in")))
        answer = await found.ask(cassette="one")

    assert answer.headers["Tapeway-Outcome"] == "replayed"
    assert await answer.text() == "brought in"


async def test_an_import_waits_for_recordings_in_flight() -> None:
    async with world() as found:
        await found.ask("/v1/before", cassette="one")
        found.service.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(found.ask("/v1/late", cassette="one"))
            await found.service.asked.get()
            await found.service.asked.get()
            putting = tasks.create_task(put(found, cassette(said("brought in"))))
            await found.got("/api/v1/status")
            assert not putting.done()
            found.service.gate.set()
        held = (await found.got(ONE))["interactions"]

    assert asking.result().headers["Tapeway-Outcome"] == "recorded"
    assert [interaction["response"]["text"] for interaction in held] == ["brought in"]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"no cassette", "line 1"),
        (b'{"version":"1"}', "interactions"),
        (b'{"version":"2","interactions":[]}', "format version 2"),
        (json.dumps(cassette({"kind": "htp"})).encode(), "interactions[0].kind"),
        (json.dumps(cassette(said("x") | {"respons": 1})).encode(), "no such field"),
    ],
)
async def test_what_is_no_cassette_is_refused_and_changes_nothing(
    open_world: World, sent: bytes, reason: str
) -> None:
    await put(open_world, cassette(said("before")))
    before = await open_world.octets(ONE)

    status, answer, _ = await put(open_world, sent)

    assert (status, answer["error"]["code"]) == (422, "bad_cassette")
    assert reason in answer["message"]
    assert await open_world.octets(ONE) == before


async def test_secrets_are_refused_by_name_and_replaced_or_kept_when_that_is_said(
    open_world: World,
) -> None:
    shown = cassette(said(f"your key is {SECRET}"))

    refused, answer, _ = await put(open_world, shown)
    assert (refused, answer["error"]["code"]) == (422, "shows_secrets")
    assert "interactions[0].response.text" in answer["message"]
    assert SECRET not in json.dumps(answer)
    assert await code(open_world, "GET", ONE) == (404, "no_cassette")

    response = await open_world.call("PUT", f"{ONE}?secrets=redact", shown)
    assert (response.status, (await response.json())["replaced"]) == (200, 1)
    assert SECRET not in (await open_world.octets(ONE)).decode()

    response = await open_world.call("PUT", f"{ONE}?secrets=keep", shown)
    assert response.status == 200
    assert SECRET in (await open_world.octets(ONE)).decode()


async def test_a_change_that_names_another_state_is_not_made(store: CassetteStore) -> None:
    async with world(store=store) as found:
        _, _, first = await put(found, cassette(said("one")), **{"If-None-Match": "*"})
        assert first is not None
        status, _, second = await put(found, cassette(said("two")), **{"If-Match": first})
        assert (status, second == first) == (200, False)

        for headers in (
            {"If-Match": first},
            {"If-None-Match": "*"},
            {"If-Match": f"W/{second}"},
            {"If-Match": '"another"'},
        ):
            status, answer, _ = await put(found, cassette(said("three")), **headers)
            assert (status, answer["error"]["code"]) == (412, "precondition_failed"), headers
        assert await code(found, "DELETE", ONE, headers={"If-Match": first}) == (
            412,
            "precondition_failed",
        )
        assert (await found.got(ONE))["interactions"][0]["response"]["text"] == "two"
        await found.ask(cassette="one")
        status, _, _ = await put(
            found, cassette(said("four")), **{"If-Match": f'"{"0" * 64}", {second}'}
        )
        assert status == 200
        gone = await found.call("DELETE", ONE, headers={"If-Match": "*"})
        assert gone.status == 200
        assert await code(found, "DELETE", ONE, headers={"If-Match": "*"}) == (404, "no_cassette")


async def test_a_tag_does_not_depend_on_whether_the_cassette_is_in(store: CassetteStore) -> None:
    async with world(store=store, mode="record") as found:
        for path in ("/v1/a", "/v1/b", "/v1/c"):
            await found.ask(path, cassette="one")
        await found.done("POST", "/api/v1/rewind")
        # What is recorded anew stands where the old one stood.
        await found.ask("/v1/a", cassette="one")
        loaded = await found.call("GET", ONE)
        await found.done("POST", "/api/v1/eject", {"cassette": "one"})
        stored = await found.call("GET", ONE)

    assert await loaded.text() == await stored.text()
    assert loaded.headers["ETag"] == stored.headers["ETag"]


async def test_a_removed_cassette_is_gone_with_what_belongs_to_it(tmp_path: Path) -> None:
    async with world(store=FileStore(tmp_path)) as found:
        await found.ask(cassette="one")
        await found.ask(cassette="one/more")
        await found.done("DELETE", ONE)

        assert [
            listed["name"] for listed in (await found.got("/api/v1/cassettes"))["cassettes"]
        ] == ["one/more"]
        assert await code(found, "DELETE", ONE) == (404, "no_cassette")
        again = await found.ask(cassette="one")
        assert again.headers["Tapeway-Outcome"] == "recorded"
        assert (await found.got(f"{ONE}/interactions"))["interactions"][0]["index"] == 0


async def test_one_that_another_process_records_into_is_left_alone(tmp_path: Path) -> None:
    other = FileStore(tmp_path)
    await other.open()
    async with world(store=FileStore(tmp_path)) as found:
        await put(found, cassette(said("one")))
        await other.load("one", writable=True)

        sent = {"data": json.dumps(cassette()), "headers": JSON}
        assert await code(found, "PUT", ONE, **sent) == (503, "cassette_locked")
        assert await code(found, "DELETE", ONE) == (503, "cassette_locked")
        assert (await found.got(ONE))["interactions"][0]["response"]["text"] == "one"
    await other.close()


@pytest.mark.parametrize(
    ("form", "type_"),
    [
        ("json", "application/json"),
        ("yaml", "application/yaml"),
        ("jsonl", "application/jsonl"),
        ("har", "application/har+json"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_every_format_goes_out_and_comes_in(
    open_world: World, form: str, type_: str, named: bool
) -> None:
    await put(open_world, cassette(said("one", "/v1/a"), said("two", "/v1/b")))
    before = await open_world.octets(ONE)
    exported = await open_world.octets(f"{ONE}?format={form}")
    await open_world.done("DELETE", ONE)

    query = f"?format={form}" if named else ""
    sent_as = {"Content-Type": "application/json" if named else type_}
    response = await open_world.call("PUT", ONE + query, data=exported, headers=sent_as)

    assert response.status == 200, await response.text()
    assert await open_world.octets(ONE) == before


async def test_what_a_format_cannot_hold_is_refused_or_told(open_world: World) -> None:
    tool = {"kind": "tool", "request": {"name": "add"}, "response": {"result": 3}}
    await put(open_world, cassette(said("one"), tool))

    refused = await open_world.call("GET", f"{ONE}?format=har")
    allowed = await open_world.call("GET", f"{ONE}?format=har&losses=allow")

    assert (refused.status, (await refused.json())["error"]["code"]) == (422, "lossy_format")
    assert "interactions[1]" in (await refused.json())["message"]
    assert allowed.status == 200
    assert int(allowed.headers["Tapeway-Losses"]) >= 1
    assert "interactions[1]" in allowed.headers["Tapeway-Lost"]
    assert len((await allowed.json())["log"]["entries"]) == 1


@pytest.mark.slow
async def test_a_body_is_bounded_and_of_a_known_type(open_world: World) -> None:
    for type_ in ("text/plain", "multipart/form-data; boundary=x", "application/octet-stream"):
        answer = await code(open_world, "PUT", ONE, data=b"{}", headers={"Content-Type": type_})
        assert answer == (415, "unsupported_media_type"), type_
    raw = await open_world.raw(
        b"PUT /api/v1/cassettes/one HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    )
    assert raw.startswith(b"HTTP/1.1 413 ")


async def test_an_import_says_what_no_cassette_can_hold(open_world: World) -> None:
    entry = {
        "startedDateTime": "2026-01-02T03:04:05Z",
        "time": 1,
        "request": {"method": "GET", "url": "http://service.invalid/a", "headers": []},
        "response": {"status": 200, "headers": [], "content": {"text": "hello"}},
    }
    unusable = {**entry, "response": {"status": 0, "headers": [], "content": {}}}
    archive = {"log": {"version": "1.2", "entries": [entry, unusable]}}

    response = await open_world.call("PUT", f"{ONE}?format=har", archive)

    answer = await response.json()
    assert (response.status, answer["interactions"]) == (200, 1)
    assert any("left out" in loss for loss in answer["losses"])


async def test_a_cassette_of_another_kind_is_kept_as_it_is(open_world: World) -> None:
    tool = {"index": 0, "kind": "tool", "request": {"name": "add"}, "response": {"result": 3}}
    await put(open_world, cassette(tool, INTERACTION))

    stored = await open_world.broker.store.load("one", writable=False)

    assert stored is not None
    assert document.encode(stored.interactions[0]) == tool


async def test_an_exported_cassette_has_its_large_bodies_in_it() -> None:
    async with world() as open_world:
        open_world.service.body = LARGE
        await open_world.ask("/v1/a", cassette="one")
        open_world.service.body = b"small"
        await open_world.ask("/v1/b", cassette="one")

        exported = await open_world.got("/api/v1/cassettes/one")

    first, second = document.load(json.dumps(exported).encode()).interactions
    assert isinstance(first, Interaction)
    assert isinstance(second, Interaction)
    assert (first.response.body, second.response.body) == (LARGE, b"small")


async def test_one_interaction_shows_the_reference() -> None:
    async with world() as open_world:
        open_world.service.body = LARGE
        await open_world.ask("/v1/a", cassette="one")

        shown = await open_world.got("/api/v1/cassettes/one/interactions/0")

    assert shown["response"]["body_file"]["size"] == len(LARGE)
    assert "text" not in shown["response"]


async def test_what_is_too_large_for_a_document_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(import_export, "MAX_INLINED", len(LARGE) - 1)
    async with world() as open_world:
        open_world.service.body = LARGE
        await open_world.ask("/v1/a", cassette="one")

        answer = await open_world.call("GET", "/api/v1/cassettes/one")

    assert answer.status == 413
    said = json.loads(await answer.text())
    assert said["error"]["code"] == "cassette_too_large"
    assert "one.assets" in said["message"]
