"""Several processes behind one port: what holds for one holds for all of them together."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession

from tests.process.counting_upstream import Upstream
from tests.process.serving import DEADLINE_S, FAILURE, USAGE, refused
from tests.process.workers.worker_processes import Crew, makers
from tests.support.ports import free_ports

WORKERS = 3


@asynccontextmanager
async def serving(
    folder: Path, *options: str, workers: int = WORKERS
) -> AsyncIterator[tuple[Upstream, Crew]]:
    async with (
        Upstream() as upstream,
        Crew(folder, workers, "--upstream", upstream.url, *options) as crew,
    ):
        yield upstream, crew


async def test_equal_misses_ask_once_and_everything_is_told_by_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as (upstream, crew):
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(crew.ask_all(["/same"] * 200))
            await upstream.was_asked("/same")
            upstream.gate.set()
        answers = asking.result()
        again = await crew.ask("/same")
        status, entries = await crew.status(), await crew.journal()
        misses = await crew.journal("outcome=miss")
        report = await crew.done("GET", "report")
        pages = [await crew.admin("GET", "/api/v1/journal?limit=150")]
        after = pages[0][1]["next"]
        pages.append(await crew.admin("GET", f"/api/v1/journal?limit=150&after={after}"))
        cleared = await crew.done("DELETE", "journal")
        left = await crew.journal()
        stopped = await crew.stopped()
        rest = await crew.rest_of_stdout()

    only = upstream.only_answer("/same")
    assert {(answer.status, answer.body) for answer in [*answers, again]} == {(200, only)}
    assert Counter(answer.outcome for answer in answers) == {b"recorded": 1, b"replayed": 199}
    assert status["counts"] == {"replayed": 200, "recorded": 1, "live": 0, "miss": 0, "error": 0}
    assert status["upstream_connections"] == upstream.connections == 1
    assert status["open_connections"] == {"in_use": 0, "idle": 1}
    assert (len(entries), misses, cleared, left) == (201, [], {"removed": 201}, [])
    assert len(makers(entries)) > 1
    assert [entry["id"] for _, page in pages for entry in page["entries"]] == [
        entry["id"] for entry in entries
    ]
    (cassette,) = report["cassettes"]
    assert (cassette["replayed"], cassette["recorded"], cassette["unused"]) == (200, 1, [])
    assert (stopped, rest) == (0, b"")


@pytest.mark.slow
async def test_recordings_of_all_are_listed_and_followed_while_they_grow(tmp_path: Path) -> None:
    targets = [f"/{number}" for number in range(6)]
    async with serving(tmp_path, workers=2) as (upstream, crew):
        upstream.rest.clear()
        async with asyncio.TaskGroup() as tasks, ClientSession(f"{crew.ready['admin']}/") as http:
            asking = tasks.create_task(crew.ask_all(targets))
            for target in targets:
                await upstream.was_asked(target)
            listed = (await crew.done("GET", "recordings"))["recordings"]
            followed = {row["path"]: row["id"] for row in listed}["/3"]
            async with http.get(f"api/v1/recordings/{followed}/events") as stream:
                first = await _event(stream)
                upstream.rest.set()
                last = await _event(stream)
                while last["state"] != "durable":
                    last = await _event(stream)
                rest = await stream.content.read()
        answers = asking.result()
        ended = await crew.done("GET", "recordings")
        code, gone = await crew.admin("GET", f"/api/v1/recordings/{followed}/events")

    assert sorted(row["path"] for row in listed) == targets
    assert len({row["id"] for row in listed}) == len(targets)
    assert {row["state"] for row in listed} <= {"asking", "receiving"}
    assert (first["id"], first["path"]) == (followed, "/3")
    assert (last["id"], last["bytes"]) == (followed, len(upstream.only_answer("/3")))
    assert (rest, ended, code) == (b"", {"recordings": []}, 404)
    assert gone["error"]["code"] == "no_recording"
    assert {answer.outcome for answer in answers} == {b"recorded"}


async def _event(stream: ClientResponse) -> Any:
    name, data = (await stream.content.readuntil(b"\n\n")).split(b"\n", 1)
    assert name == b"event: recording"
    return json.loads(data.removeprefix(b"data: "))


@pytest.mark.slow
async def test_a_slot_points_to_the_same_cassette_and_take_on_all(tmp_path: Path) -> None:
    options = ("--mode", "record", "--repeats", "miss")
    async with serving(tmp_path, *options, workers=2) as (_, crew):
        await crew.ask_all(["/@shared/turn"] * 8)
        takes = []
        for slot in ("w0", "w1"):
            said = await crew.done("PUT", f"slots/{slot}", {"cassette": "shared", "mode": "replay"})
            takes.append(said["take"])
        answers = await crew.ask_all(["/@~w0/turn"] * 10)
        await crew.ask_all(["/@~w1/turn"] * 6)
        entries, others = [
            await crew.journal(f"slot={slot}&take={take}")
            for slot, take in zip(("w0", "w1"), takes, strict=True)
        ]
        (cassette,) = [
            listed for listed in (await crew.done("GET", "report"))["cassettes"] if listed["misses"]
        ]
        order = await crew.order("shared")
        await crew.done("DELETE", "slots/w0")
        gone = await crew.ask_all(["/@~w0/turn"] * 4)

    assert Counter(answer.status for answer in answers) == {200: 8, 400: 2}
    hits = [entry["interaction"] for entry in entries if entry["outcome"] == "replayed"]
    assert sorted(hits) == sorted(order) == list(range(8))
    assert sorted(other["interaction"] for other in others) == sorted(order[:6])
    assert (cassette["name"], cassette["unused"]) == ("shared", [])
    assert {answer.status for answer in gone} == {404}


async def test_what_is_steered_is_in_force_on_all_when_it_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, crew):
        outcomes: dict[str, Counter[bytes]] = {}
        for turn, mode in enumerate(("replay", "passthrough", "auto", "replay", "record")):
            await crew.done("PUT", "mode", {"mode": mode})
            answers = await crew.ask_all([f"/{turn}/{number}" for number in range(20)])
            outcomes[f"{turn} {mode}"] = Counter(answer.outcome for answer in answers)
        await crew.done("POST", "insert", {"cassette": "other", "mode": "auto"})
        others = await crew.ask_all([f"/other/{number}" for number in range(20)])
        alone = await crew.done("PUT", "mode", {"mode": "replay", "cassette": "alone"})
        missed = await crew.ask_all([f"/@alone/{number}" for number in range(20)])

    assert outcomes == {
        "0 replay": {b"miss": 20},
        "1 passthrough": {b"live": 20},
        "2 auto": {b"recorded": 20},
        "3 replay": {b"miss": 20},
        "4 record": {b"recorded": 20},
    }
    assert {(other.value(b"Tapeway-Cassette"), other.outcome) for other in others} == {
        (b"other", b"recorded")
    }
    assert (alone["mode"], alone["cassette"]) == ("replay", "alone")
    assert {answer.outcome for answer in missed} == {b"miss"}


@pytest.mark.slow
async def test_an_eject_waits_for_a_recording_that_a_worker_still_makes(tmp_path: Path) -> None:
    async with serving(tmp_path, "--mode", "record", workers=2) as (upstream, crew):
        await crew.ask("/first")
        upstream.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(crew.ask(f"/{number}")) for number in range(8)]
            for number in range(8):
                await upstream.was_asked(f"/{number}")
            ejecting = tasks.create_task(crew.done("POST", "eject", {}))
            await crew.status()
            assert not ejecting.done()
            upstream.gate.set()
        again = await crew.admin("POST", "/api/v1/eject", {})

    (report,) = ejecting.result()["cassettes"]
    assert (report["name"], report["recorded"], report["unused"]) == ("default", 9, [])
    assert {task.result().outcome for task in asking} == {b"recorded"}
    assert again[0] == 409


@pytest.mark.slow
async def test_what_any_worker_missed_can_be_accepted_for_all(tmp_path: Path) -> None:
    async with serving(tmp_path, workers=2) as (_, crew):
        await crew.ask("/v1/models?page=1")
        await crew.done("PUT", "mode", {"mode": "replay"})
        before = await crew.ask_all([f"/v1/models?page={number}" for number in range(2, 14)])
        entry = (await crew.journal("outcome=miss"))[-1]
        await crew.done("POST", f"journal/{entry['id']}/accept", {})
        after = await crew.ask_all([f"/v1/models?page={number}" for number in range(2, 14)])

    assert {answer.outcome for answer in before} == {b"miss"}
    document = json.loads(before[0].body)
    assert document["tapeway"]["journal"] == f"{crew.ready['admin']}/api/v1/journal?outcome=miss"
    page = f"{crew.ready['admin']}/#/journal/{document['request_id']}"
    assert document["tapeway"]["page"] == page
    assert entry["suggestion"] == 'ignore = ["query.page"]'
    assert {answer.outcome for answer in after} == {b"replayed"}


async def test_events_and_metrics_come_from_all(tmp_path: Path) -> None:
    asked = 0
    async with serving(tmp_path, workers=2) as (_, crew), ClientSession() as http:
        async with http.get(f"{crew.ready['admin']}/api/v1/events") as stream:
            events: list[object] = []
            async with asyncio.timeout(DEADLINE_S):
                # Which of them accepts a connection is up to the system.
                while asked < 20 or len(makers(await crew.journal())) < 2:
                    await crew.ask(f"/{asked}")
                    asked += 1
                while len(events) < asked:
                    line = await stream.content.readline()
                    if line.startswith(b"data: "):
                        events.append(json.loads(line.removeprefix(b"data: ")))
        entries = await crew.journal()
        async with http.get(f"{crew.ready['admin']}/metrics") as answer:
            text = await answer.text()
        resident = sum(_resident(pid) for pid in [crew.pid, *crew.workers])

    assert events == entries[::-1]
    # Whoever served them, they stand in the order they were answered in.
    assert [entry["path"] for entry in entries] == [
        f"/{number}" for number in range(asked - 1, -1, -1)
    ]
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    route = 'outcome="recorded",route="default",status="2xx"'
    assert found[f'tapeway_requests_total{{cassette="default",{route}}}'] == f"{asked}.0"
    assert found[f"tapeway_request_duration_seconds_count{{{route}}}"] == f"{asked}.0"
    sent = found['tapeway_sent_bytes_total{route="default"}']
    assert sent == found['tapeway_received_bytes_total{route="default"}'] != "0.0"
    assert found['tapeway_cassette_interactions{cassette="default"}'] == f"{asked}.0"
    assert float(found["process_resident_memory_bytes"]) > resident * 0.8


@pytest.mark.parametrize("store", ["memory:", "cassettes", "file:cassettes"])
async def test_a_store_that_cannot_be_shared_is_refused(tmp_path: Path, store: str) -> None:
    code, message = await refused(tmp_path, "--workers", "2", "--store", store)

    assert code == USAGE
    assert message.startswith("--workers 2: the store ")
    assert "sqlite:FILE or postgresql://" in message
    assert "--workers 1" in message


@pytest.mark.slow
async def test_a_port_that_workers_share_is_taken_for_other_starts(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listen = ("--listen", f"127.0.0.1:{port}")
    async with Crew(tmp_path, 2, *listen) as crew:
        other = tmp_path / "other"
        other.mkdir()
        for options in ((), ("--workers", "2", "--store", f"sqlite:{other}/all.db")):
            code, message = await refused(other, *options, *listen)
            assert code == FAILURE
            assert message.startswith(f"--listen 127.0.0.1:{port} is taken by another process")
        assert (await crew.ask("/x")).status == 404


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError(pid)
