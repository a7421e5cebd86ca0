"""Several processes replay one folder, each from memory: what holds for one holds for all together."""

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import DEADLINE_S, USAGE, Tapeway, refused
from tests.process.workers.request_script import Counting, Script
from tests.process.workers.test_workers_ending import Running
from tests.process.workers.worker_processes import Crew, makers

CHAT = "/v1/chat/completions"
ASKED = {"model": "gpt-5", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
TURNS = 8


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder with cassettes: `/turn` was answered eight times, and twenty others once."""
    async with Upstream() as upstream:
        options = ("--mode", "record", "--upstream", upstream.url)
        async with Tapeway(tmp_path, *options) as tapeway:
            for _ in range(TURNS):
                await tapeway.ask("/turn")
            for number in range(20):
                await tapeway.ask(f"/{number}")
            await tapeway.ask("/@second/turn")
    return tmp_path


def crew_of(folder: Path, *options: str, workers: int = 2, own_workers: bool = False) -> Crew:
    store = ("--store", str(folder / "cassettes"))
    return Crew(folder, workers, *store, "--mode", "replay", *options, own_workers=own_workers)


async def turns(crew: Crew, count: int, target: str = "/turn") -> list[int]:
    """The recordings that answer, one after the other, each on a connection of its own."""
    return [int((await crew.ask(target)).value(b"Tapeway-Interaction") or -1) for _ in range(count)]


async def test_repeats_come_in_order_whichever_worker_is_asked(folder: Path) -> None:
    takes = []
    async with crew_of(folder) as crew:
        async with asyncio.timeout(DEADLINE_S):
            # Which of them accepts a connection is up to the system.
            while len(makers(await crew.journal())) < 2:
                await crew.done("POST", "rewind", {})
                takes.append(await turns(crew, TURNS + 2))
        await crew.done("POST", "rewind", {})
        together = await crew.ask_all(["/turn"] * TURNS)
        after = await crew.journal(f"limit={TURNS}")

    assert takes == [[*range(TURNS), TURNS - 1, TURNS - 1]] * len(takes)
    assert {each.outcome for each in together} == {b"replayed"}
    assert sorted(each["interaction"] for each in after) == list(range(TURNS))


@pytest.mark.slow
async def test_what_answers_once_answers_once_among_all(folder: Path) -> None:
    async with crew_of(folder, "--repeats", "miss") as crew:
        said = await crew.ask_all(["/1"] * 12)

    assert Counter(each.outcome for each in said) == {b"replayed": 1, b"miss": 11}


@pytest.mark.slow
async def test_a_worker_that_is_killed_leaves_the_order_as_it_was(folder: Path) -> None:
    crew = crew_of(folder, own_workers=True)
    async with Running(crew):
        asked = await turns(crew, 2)
        for worker in crew.workers:
            os.kill(worker, signal.SIGKILL)
            asked += await turns(crew, 2)
        asked += await turns(crew, 2)
        (cassette,) = (await crew.status())["cassettes"]
        assert await crew.stopped() == 0

    assert asked == list(range(TURNS))
    assert cassette["unused"] == 20


async def test_what_is_changed_is_in_force_on_all_when_it_is_answered(folder: Path) -> None:
    async with crew_of(folder, workers=3) as crew:
        for take in range(3):
            assert await turns(crew, 3) == [0, 1, 2], take
            await crew.done("POST", "rewind", {})
        await crew.done("POST", "insert", {"cassette": "second"})
        active = await crew.ask_all(["/turn"] * 12)
        for slot in ("one", "two"):
            await crew.done("PUT", f"slots/{slot}", {"cassette": "default"})
        slots = [await turns(crew, 3, f"/@~{slot}/turn") for slot in ("one", "two")]
        await crew.done("DELETE", "slots/one")
        gone = await crew.ask_all(["/@~one/turn"] * 12)
        report = await crew.done("POST", "eject", {"cassette": "default"})
        again = await turns(crew, 2, "/@default/turn")

    assert {each.value(b"Tapeway-Cassette") for each in active} == {b"second"}
    assert slots == [[0, 1, 2]] * 2
    assert {each.status for each in gone} == {404}
    assert len(report["cassettes"][0]["unused"]) == 20 + TURNS - 3
    assert again == [0, 1]


@pytest.mark.slow
async def test_a_worker_that_hangs_is_named_where_it_does_not_follow(folder: Path) -> None:
    async with crew_of(folder, own_workers=True) as crew:
        hung = crew.workers[1]
        os.kill(hung, signal.SIGSTOP)
        try:
            code, said = await crew.admin("POST", "/api/v1/rewind", {})
        finally:
            os.kill(hung, signal.SIGCONT)
        assert await turns(crew, 3) == [0, 1, 2]
        followed = await crew.done("POST", "rewind", {})

    assert (code, said["laggards"]) == (202, [f"worker 2 (process {hung})"])
    assert "laggards" not in followed


async def test_a_file_that_is_changed_is_replayed_by_all(folder: Path) -> None:
    async with crew_of(folder) as crew:
        before = await crew.ask_all(["/1"] * 8)
        body = before[0].body.decode()
        file = folder / "cassettes" / "default.json"
        file.write_text(file.read_text().replace(body, "/1 edited"))
        await crew.until(lambda: "was changed on disk" in crew.stderr, "it was noticed")
        await eventually_all(crew, "/1", b"/1 edited")
        again = await turns(crew, 2)

    assert {each.body for each in before} == {body.encode()}
    assert again == [0, 1]


async def eventually_all(crew: Crew, target: str, body: bytes) -> None:
    """Return when every worker answers so."""
    async with asyncio.timeout(DEADLINE_S):
        while {each.body for each in await crew.ask_all([target] * 16)} != {body}:
            continue


@pytest.mark.slow
async def test_all_that_they_answered_is_counted_once(folder: Path) -> None:
    async with crew_of(folder) as crew:
        await crew.ask_all([f"/{number}" for number in range(15)] * 3)
        await turns(crew, 3)
        await crew.ask_all(["/nothing"] * 4)
        status = await crew.status()
        (cassette,) = (await crew.done("GET", "report"))["cassettes"]
        listed = await crew.done("GET", "cassettes?counts=true")

    assert status["counts"] == {"replayed": 48, "recorded": 0, "live": 0, "miss": 4, "error": 0}
    assert status["cassettes"][0]["unused"] == len(cassette["unused"]) == 5 + TURNS - 3
    assert (cassette["replayed"], cassette["misses"][0]["times"]) == (48, 4)
    assert [each["name"] for each in listed["cassettes"]] == ["default", "second"]


@pytest.mark.parametrize("mode", ["record", "auto"])
async def test_a_mode_that_writes_is_refused_at_the_start(tmp_path: Path, mode: str) -> None:
    code, message = await refused(tmp_path, "--workers", "2", "--mode", mode)

    assert code == USAGE
    assert f"cannot be used by several processes at once in mode {mode}" in message
    assert "give --mode replay, --store sqlite:FILE" in message


@pytest.mark.slow
async def test_what_would_write_is_refused_and_they_replay_on(folder: Path) -> None:
    file = folder / "cassettes" / "default.json"
    before = file.read_bytes()
    document = json.loads(before)
    calls: list[tuple[str, str, object]] = [
        ("PUT", "mode", {"mode": "record"}),
        ("PUT", "mode", {"mode": "auto", "cassette": "default"}),
        ("POST", "insert", {"cassette": "default", "mode": "auto"}),
        ("PUT", "slots/one", {"cassette": "default", "mode": "record"}),
        ("POST", "eject", {"prune": True}),
        ("PUT", "cassettes/new", document),
        ("PUT", "cassettes/default", document),
        ("DELETE", "cassettes/default", None),
        ("DELETE", "cassettes/default/interactions/0", None),
        ("PUT", "cassettes/default/interactions/0", document["interactions"][0]),
        ("POST", "cassettes/default/interactions", {"interactions": document["interactions"][:1]}),
        ("POST", "cassettes/default/claim", None),
    ]
    async with crew_of(folder) as crew:
        await crew.ask("/turn")
        await crew.ask("/turn?page=2")
        (entry,) = await crew.journal("outcome=miss")
        calls.append(
            ("POST", f"journal/{entry['id']}/accept", {"rule": {"ignore": ["query.page"]}})
        )
        said = {
            f"{method} {path}": await crew.admin(method, f"/api/v1/{path}", body)
            for method, path, body in calls
        }
        mode = await crew.done("GET", "mode")
        rest = await turns(crew, 2)

    wrong = {
        what: document
        for what, (status, document) in said.items()
        if (status, document["error"]["code"]) != (409, "several_workers")
    }
    assert wrong == {}
    assert (mode["mode"], rest) == ("replay", [1, 2])
    assert file.read_bytes() == before
    assert sorted(each.name for each in (folder / "cassettes").glob("*.json")) == [
        "default.json",
        "second.json",
    ]


@pytest.mark.slow
async def test_several_processes_say_what_one_says(tmp_path: Path) -> None:
    async with (
        Counting() as upstream,
        Tapeway(tmp_path, "--upstream", upstream.url, "--mode", "record") as tapeway,
    ):
        for _ in range(3):
            await tapeway.ask(
                CHAT, json.dumps(ASKED).encode(), ("Content-Type", "application/json")
            )
        for target in ("/one", "/broken", "/large", "/turn", "/turn", "/@a%2Fb/turn"):
            await tapeway.ask(target)
    said: list[list[tuple[str, Any]]] = []
    for workers in (1, 3):
        own = tmp_path / str(workers)
        shutil.copytree(tmp_path / "cassettes", own / "cassettes")
        (own / "cassettes/bad.json").write_text("{")
        script = Script(crew := crew_of(own, "--upstream", upstream.url, workers=workers))
        async with crew:
            await _played(script)
        said.append(script.said)

    one, several = said
    for (what, alone), (also, together) in zip(one, several, strict=True):
        assert (also, _without_folder(together)) == (what, _without_folder(alone))


def _without_folder(said: Any) -> Any:
    return json.loads(json.dumps(said, default=repr).replace("/3/cassettes", "/1/cassettes"))


async def _played(script: Script) -> None:
    ask, admin = script.ask, script.admin
    for _ in range(2):
        for _ in range(4):
            await ask(CHAT, ASKED)
            await ask("/turn")
        await ask(CHAT, {**ASKED, "user": "tim"})
        for target in ("/one", "/broken", "/large", "/nothing", "/@a%2Fb/turn", "/@none/turn"):
            await ask(target)
        for tries in range(3):
            await ask("/missing", None, ("x-stainless-retry-count", str(tries)))
        for path in ("status", "journal?limit=5", "journal?outcome=miss", "report?format=junit"):
            await admin("GET", path)
        for path in ("cassettes", "cassettes?counts=true", "cassettes/default", "mode", "report"):
            await admin("GET", path)
        for path in ("interactions", "interactions/0", "interactions/99", "messages", "outline"):
            await admin("GET", f"cassettes/default/{path}")
        for path in ("/metrics", "/readyz", "/healthz"):
            await admin("GET", path)
        await admin("PUT", "mode", {"mode": "sing"})
        await admin("PUT", "slots/s", {"cassette": "a/b"})
        for target in ("/@~s/turn", "/@~s/turn", "/@~none/turn"):
            await ask(target)
        await admin("POST", "insert", {"cassette": "a/b", "mode": "replay"})
        await ask("/turn")
        await admin("POST", "insert", {"cassette": "../x"})
        await admin("PUT", "mode", {"mode": "passthrough", "cassette": "none"})
        await ask("/@none/x")
        await admin("POST", "insert", {"cassette": "default", "mode": "replay"})
        for _ in range(2):
            await admin("POST", "eject", {"cassette": "a/b"})
        await ask("/@a%2Fb/turn")
        await admin("POST", "rewind", {})
    await admin("GET", "eject")
    await ask("/@bad/x")
    (entry,) = json.loads((await admin("GET", "journal?limit=1")).body)["entries"]
    await admin("POST", f"journal/{entry['id']}/accept", {"rule": {"ignore": ["query.page"]}})
    assert Counter(what.partition(" ")[0] for what, _ in script.said)["ask"] > 30
