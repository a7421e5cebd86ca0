"""The journal as scripts read it and as it grows, and a miss that is accepted from it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse

from tapeway.engine.journal import ClientTexts, ServedRequest
from tapeway.errors import StoreFull
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.admin.admin_and_proxy import World, world
from tests.support.fakes.broker import until
from tests.support.memory import living

KEYS = [
    *("id", "at", "cassette", "route", "method", "path", "outcome", "status", "interaction"),
    *("duration_ms", "match_key", "message", "nearest", "suggestion"),
    *("record_command", "attempt", "faulted", "slot", "take"),
    *("client_address", "request_id", "trace_id", "asked", "answered"),
    *("model", "tokens", "first_byte_ms", "recorded_ms"),
]


EMPTY: dict[str, object] = {"entries": [], "next": None, "searched": None, "left": None}


async def test_an_entry_says_what_became_of_a_request_and_why(open_world: World) -> None:
    recorded = await open_world.ask("/v1/models?limit=2")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/missing")

    miss, hit = (await open_world.got("/api/v1/journal"))["entries"]

    assert list(miss) == list(hit) == KEYS
    assert hit == {
        "id": hit["id"],
        "at": "2023-11-14T22:13:20.250+00:00",
        "cassette": "default",
        "route": "default",
        "method": "GET",
        "path": "/v1/models?limit=2",
        "outcome": "recorded",
        "status": 200,
        "interaction": int(recorded.headers["Tapeway-Interaction"]),
        "duration_ms": 0.0,
        "match_key": hit["match_key"],
        "message": None,
        "nearest": [],
        "suggestion": None,
        "record_command": None,
        "attempt": None,
        "faulted": None,
        "slot": None,
        "take": None,
        "client_address": "127.0.0.1",
        "request_id": hit["id"],
        "trace_id": None,
        "asked": None,
        "answered": None,
        "model": None,
        "tokens": None,
        "first_byte_ms": None,
        "recorded_ms": None,
    }
    assert hit["match_key"].startswith("v1:")
    assert (miss["outcome"], miss["status"], miss["interaction"]) == ("miss", 400, None)
    assert miss["message"].startswith("replay miss: GET /v1/missing is not in cassette 'default'")


async def asked_to_model(world: World, text: str) -> None:
    message = {"role": "user", "content": f"{text} is the question"}
    body = {"model": "m", "messages": [message]}
    async with world.http.post(world.proxy + "/v1/chat/completions", json=body) as response:
        await response.read()


async def test_entries_tell_what_was_asked_and_answered_if_they_are_asked_to(
    open_world: World,
) -> None:
    url = open_world.admin + "/api/v1/events?gist=true"
    async with open_world.http.get(url) as stream:
        await asked_to_model(open_world, "Where to go")
        await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
        await asked_to_model(open_world, "Where to go")
        await asked_to_model(open_world, "Where to stay")
        page = await open_world.got("/api/v1/journal?gist=true")
        events: list[Any] = []
        while len(events) < 3:
            line = await stream.content.readline()
            events += [json.loads(line[5:])] if line.startswith(b"data:") else []

    told = [(entry["asked"], entry["answered"]) for entry in page["entries"]]
    assert told == [
        (
            "Where to stay is the question",
            "messages[0].content: Where to go is the question → Where to stay is the questio…",
        ),
        ("Where to go is the question", "answer: 1"),
        ("Where to go is the question", "answer: 1"),
    ]
    assert [(event["asked"], event["answered"]) for event in reversed(events)] == told


async def test_a_miss_that_nothing_is_near_to_says_why_and_calls_tell_model_and_tokens(
    open_world: World,
) -> None:
    await asked_to_model(open_world, "Where to go")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/nowhere")
    await open_world.ask("/v1/nowhere", cassette="never")
    page = await open_world.got("/api/v1/journal?gist=true")

    assert [(entry["answered"], entry["model"]) for entry in page["entries"]] == [
        ("no such cassette", None),
        ("nothing is recorded for this method and path", None),
        ("answer: 1", "m"),
    ]


async def test_a_miss_names_the_first_difference_and_counts_the_others(open_world: World) -> None:
    await open_world.ask("/v1/a?first=1&second=2")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/a?first=8&second=2")
    await open_world.ask("/v1/a?first=8&second=9")
    page = await open_world.got("/api/v1/journal?gist=true&outcome=miss")

    two, one = [entry["answered"] for entry in page["entries"]]
    assert two == f"{one}, and 1 more"


async def test_it_is_newest_first_and_can_be_narrowed(open_world: World) -> None:
    await open_world.ask("/v1/a", cassette="one")
    await open_world.ask("/v1/b", cassette="two")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/c", cassette="one")
    await open_world.ask("/v1/d", cassette="two")

    async def paths(query: str) -> list[str]:
        found = await open_world.got(f"/api/v1/journal{query}")
        return [entry["path"] for entry in found["entries"]]

    assert await paths("") == ["/v1/d", "/v1/c", "/v1/b", "/v1/a"]
    assert await paths("?outcome=miss") == ["/v1/d", "/v1/c"]
    assert await paths("?cassette=one") == ["/v1/c", "/v1/a"]
    assert await paths("?cassette=one&outcome=recorded") == ["/v1/a"]
    assert await paths("?outcome=live") == []


async def test_pages_hold_each_entry_once_though_new_ones_come(open_world: World) -> None:
    for number in range(5):
        await open_world.ask(f"/v1/{number}")

    first = await open_world.got("/api/v1/journal?limit=2")
    await open_world.ask("/v1/new")
    second = await open_world.got(f"/api/v1/journal?limit=2&after={first['next']}")
    third = await open_world.got(f"/api/v1/journal?limit=2&after={second['next']}")

    pages = [[entry["path"] for entry in page["entries"]] for page in (first, second, third)]
    assert pages == [["/v1/4", "/v1/3"], ["/v1/2", "/v1/1"], ["/v1/0"]]
    assert third["next"] is None
    assert (await open_world.got("/api/v1/journal?limit=6"))["next"] is None


async def test_a_page_after_an_entry_that_has_left_is_empty(open_world: World) -> None:
    await open_world.ask()

    assert await open_world.got("/api/v1/journal?after=long-gone") == EMPTY


async def test_it_can_be_cleared_and_counters_stay(open_world: World) -> None:
    for number in range(3):
        await open_world.ask(f"/v1/{number}")

    assert await open_world.done("DELETE", "/api/v1/journal") == {"removed": 3}
    assert await open_world.got("/api/v1/journal") == EMPTY
    assert (await open_world.got("/api/v1/status"))["counts"]["recorded"] == 3


async def test_octets_that_are_no_text_do_not_break_it(open_world: World) -> None:
    await open_world.ask()
    (entry,) = open_world.journal
    odd = b"/caf\xe9\xff".decode("utf-8", "surrogateescape")
    open_world.journal.add(entry._replace(texts=ClientTexts(odd), message=f"no route takes {odd}"))

    shown = (await open_world.got("/api/v1/journal"))["entries"][0]

    assert shown["path"] == "/caf\\udce9\\udcff"
    assert shown["message"] == "no route takes /caf\\udce9\\udcff"


async def test_a_journal_of_thousands_is_read_a_page_at_a_time(open_world: World) -> None:
    await open_world.ask()
    (entry,) = open_world.journal
    for number in range(3000):
        open_world.journal.add(_numbered(entry, number))

    page = await open_world.got("/api/v1/journal?limit=1000")

    assert len(page["entries"]) == len(open_world.journal) == 1000
    assert page["next"] is None


def _numbered(entry: ServedRequest, number: int) -> ServedRequest:
    return entry._replace(id=f"n-{number}")


@asynccontextmanager
async def _following(found: World) -> AsyncIterator[ClientResponse]:
    async with found.http.get(found.admin + "/api/v1/events") as stream:
        assert stream.status == 200
        yield stream


async def _next(stream: ClientResponse) -> bytes:
    return await stream.content.readuntil(b"\n\n")


async def _event(stream: ClientResponse) -> Any:
    name, id, data = (await _next(stream)).split(b"\n", 2)
    assert name == b"event: request"
    found = json.loads(data.removeprefix(b"data: "))
    assert id == b"id: " + found["id"].encode()
    return found


async def test_each_request_is_an_event_equal_to_its_entry(open_world: World) -> None:
    await open_world.ask("/v1/before")
    async with _following(open_world) as stream:
        for path in ("/v1/a", "/v1/b"):
            await open_world.ask(path)
        assert (await _next(stream)).startswith(b": ")
        events = [await _event(stream) for _ in range(2)]

    assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    entries = (await open_world.got("/api/v1/journal?limit=2"))["entries"]
    assert events == entries[::-1]
    assert [event["path"] for event in events] == ["/v1/a", "/v1/b"]


async def test_nothing_that_happens_after_the_head_is_lost(open_world: World) -> None:
    for turn in range(20):
        async with _following(open_world) as stream:
            await open_world.ask(f"/v1/{turn}")
            await _next(stream)
            assert (await _event(stream))["path"] == f"/v1/{turn}"


@pytest.mark.parametrize("how", ["query", "header"])
async def test_a_follower_goes_on_after_an_entry(open_world: World, how: str) -> None:
    for path in ("/v1/a", "/v1/b", "/v1/c"):
        await open_world.ask(path)
    oldest = [entry["id"] for entry in (await open_world.got("/api/v1/journal"))["entries"]][-1]
    query, headers = f"?after={oldest}", {"Last-Event-ID": oldest}
    url = open_world.admin + "/api/v1/events"

    async with open_world.http.get(
        url + (query if how == "query" else ""), headers=headers if how == "header" else {}
    ) as stream:
        await _next(stream)
        await open_world.ask("/v1/d")
        events = [await _event(stream) for _ in range(3)]

    assert [event["path"] for event in events] == ["/v1/b", "/v1/c", "/v1/d"]


async def test_a_follower_is_told_of_a_gap_if_its_entry_is_gone(open_world: World) -> None:
    await open_world.ask("/v1/a")

    async with open_world.http.get(f"{open_world.admin}/api/v1/events?after=gone") as stream:
        await _next(stream)
        gap = await _next(stream)
        event = await _event(stream)

    assert gap == b"event: gap\ndata: {}\n\n"
    assert event["path"] == "/v1/a"


async def test_several_may_follow(open_world: World) -> None:
    async with _following(open_world) as one, _following(open_world) as two:
        await open_world.ask("/v1/a")
        for stream in (one, two):
            await _next(stream)
            assert (await _event(stream))["path"] == "/v1/a"


async def test_events_that_come_together_are_written_together(open_world: World) -> None:
    await open_world.ask("/v1/a")
    entry = next(iter(open_world.journal))
    async with _following(open_world) as stream:
        await _next(stream)
        for number in range(450):
            open_world.journal.add(_numbered(entry, number))
        chunks: list[bytes] = [b""]
        while sum(chunk.count(b"\n\n") for chunk in chunks) < 450:
            data, ends = await stream.content.readchunk()
            chunks[-1] += data
            if ends:
                chunks.append(b"")

    found = re.findall(rb"^id: n-(\d+)$", b"".join(chunks), re.MULTILINE)
    assert list(map(int, found)) == list(range(450))
    assert len(chunks) <= 5


async def test_silence_is_filled_with_comments() -> None:
    async with world(heartbeat_s=0.01) as found, _following(found) as stream:
        pieces = [await _next(stream) for _ in range(4)]
        await found.ask("/v1/a")
        while (piece := await _next(stream)).startswith(b": heartbeat"):
            pass

    assert pieces[1:] == [b": heartbeat\n\n"] * 3
    assert piece.startswith(b"event: request\n")


async def test_it_ends_with_a_last_chunk_when_the_journal_closes(open_world: World) -> None:
    async with _following(open_world) as stream:
        await open_world.ask("/v1/a")
        await _next(stream)
        open_world.journal.close()
        rest = await stream.content.read()

    assert rest.count(b"event: request") == 1
    async with _following(open_world) as late:
        assert await late.content.read() == b": new journal entries follow\n\n"


async def test_it_ends_when_the_listener_stops() -> None:
    async with asyncio.TaskGroup() as tasks, world() as found:
        reader, writer = await asyncio.open_connection("127.0.0.1", found.admin_port)
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"follow\n\n")
        reading = tasks.create_task(reader.read())

    assert reading.result().endswith(b"0\r\n\r\n"), "the end is a clean one"
    writer.close()


async def test_a_follower_who_left_is_forgotten(open_world: World) -> None:
    before = living(asyncio.Queue)
    async with _following(open_world) as stream:
        await _next(stream)
        assert living(asyncio.Queue) > before
        stream.close()
    for _ in range(200):
        # It is noticed by the next write, which the next request brings. Who stays and reads
        # nothing is let go after a thousand.
        await open_world.ask("/v1/a")
        if living(asyncio.Queue) <= before:
            return
    pytest.fail("the follower is still there")


async def test_a_follower_who_lags_too_far_behind_is_let_go(open_world: World) -> None:
    await open_world.ask()
    (entry,) = open_world.journal
    before = living(asyncio.Queue)
    async with _following(open_world) as stream:
        await _next(stream)
        # All at once: the follower has no turn in between.
        for _ in range(1002):
            open_world.journal.add(entry)
        rest = await stream.content.read()

    assert 0 < rest.count(b"event: request") <= 1001
    await until(lambda: living(asyncio.Queue) <= before)


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
    assert "details" not in entry, "the message says it all"
    assert (
        entry["message"]
        .partition("; nearest ")[2]
        .startswith("#0 differs at query.page: 1 → 2; rule")
    )


async def test_a_rule_of_ones_own_can_be_accepted_instead(open_world: World) -> None:
    entry = await missed(open_world)
    rule = {"normalise": ["epoch"], "patterns": {"page": "[0-9]+"}}

    accepted = await open_world.done(
        "POST", f"/api/v1/journal/{entry['id']}/accept", {"rule": rule}
    )

    assert accepted["rules"] == rule
    assert accepted["suggestion"] == 'normalise = ["epoch"]\npatterns = { "page" = "[0-9]+" }'
    assert await outcome(open_world, "/v1/models?page=77") == "replayed"


async def test_a_suggestion_that_would_mix_up_recordings_made_since_is_refused(
    open_world: World,
) -> None:
    entry = await missed(open_world)
    await open_world.done("PUT", "/api/v1/mode", {"mode": "record"})
    await open_world.ask("/v1/models?page=3")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    path = f"/api/v1/journal/{entry['id']}/accept"
    response = await open_world.call("POST", path)

    error = (await response.json())["error"]
    assert (response.status, error["code"]) == (409, "unsafe_rule")
    assert error["message"].startswith(
        'no rule is suggested: ignore = ["query.page"] would also make recordings #0 and #1 equal'
    )
    assert await outcome(open_world) == "miss"
    later = (await open_world.got("/api/v1/journal?outcome=miss"))["entries"][0]
    assert later["suggestion"] is None
    assert "would also make recordings #0 and #1 equal" in later["message"]
    # A rule of their own is up to people.
    await open_world.done("POST", path, {"rule": {"ignore": ["query.page"]}})
    assert await outcome(open_world) == "replayed"


async def test_to_accept_again_changes_nothing(open_world: World) -> None:
    entry = await missed(open_world)
    path = f"/api/v1/journal/{entry['id']}/accept"

    assert await open_world.done("POST", path) == await open_world.done("POST", path)
    assert len(await open_world.broker.store.names()) == 1


async def test_rules_accepted_at_the_same_time_are_all_in_force(open_world: World) -> None:
    page = await missed(open_world)
    size = await missed(open_world, "/v1/models?page=1&size=2", record=False)

    await asyncio.gather(
        *(
            open_world.done("POST", f"/api/v1/journal/{entry['id']}/accept")
            for entry in (page, size)
        )
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
        left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

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
