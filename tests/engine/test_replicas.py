"""Several processes replay one folder from memory: together they say what one says."""

import asyncio
import hashlib
import random
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.body_files import Spool
from tapeway.core.cassette.plan import Ask, Incoming, Replay
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.engine import replicas as replicas_module
from tapeway.engine.broker import Broker
from tapeway.engine.decision import READ_AT_ONCE
from tapeway.engine.editing.changes import Addition
from tapeway.engine.journal import MOST_EMPTY
from tapeway.engine.memory_cassettes import MemoryCassettes
from tapeway.engine.recorder import Policy
from tapeway.errors import AdminError, CassetteCorrupt, NoRoute, StoreAway
from tapeway.stores.file.store import FileStore
from tests.core.keys import JSON
from tests.support.fakes.broker import HEAD, ROUTES
from tests.support.fakes.live_service import FakeResponder
from tests.support.fakes.replica_brokers import ReplicaBrokers, replica_brokers
from tests.support.thoroughness import step

Decider = Broker | ReplicaBrokers


def get(path: str, *headers: tuple[bytes, bytes], route: str = "openai") -> Request:
    return Request(route, "GET", path, headers, base="https://up" if route == "openai" else "")


def post(body: Json, headers: Headers = JSON) -> Request:
    return Request("openai", "POST", "/v1/chat", headers, dump(body), "https://up")


def chat(*results: tuple[str, str]) -> Request:
    """A turn of a loop with tools: each call with its result."""
    said: list[Json] = [{"role": "user", "content": "weather?"}]
    if results:
        calls: list[Json] = [{"id": name, "type": "function"} for name, _ in results]
        said.append({"role": "assistant", "tool_calls": calls})
    said += [{"role": "tool", "tool_call_id": name, "content": text} for name, text in results]
    return post({"model": "m", "messages": said})


CALL = "call_h5Xw0Vb1jZ"
EN, DE = (b"accept-language", b"en"), (b"accept-language", b"de")
EXCHANGES: Sequence[tuple[Request, str]] = [
    (get("/only"), "only"),
    (get("/other?key=sk-live-0123456789abcdef"), "other"),
    *[(get("/turn"), f"turn {number}") for number in range(3)],
    *[
        (get("/spoken", spoken), f"{spoken[1].decode()} {at}")
        for at in (1, 2)
        for spoken in (EN, DE)
    ],
    (chat(), dump({"tool_calls": [{"id": CALL}]}).decode()),
    (chat((CALL, "sun")), "sunny"),
    (chat((CALL, "sun")), "sunny again"),
]


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    await save(tmp_path, EXCHANGES)
    return tmp_path


async def save(folder: Path, exchanges: Sequence[tuple[Request, str]]) -> None:
    held = [_recording(index, *each) for index, each in enumerate(exchanges)]
    store = FileStore(folder)
    await store.save("default", StoredCassette(CassetteHead("", "run-1"), tuple(held)))
    await store.close()


def _recording(index: int, request: Request, text: str) -> Interaction:
    response = Response(ResponseHead(200, headers=JSON), text.encode())
    return Interaction(index, request, response)


def alone(folder: Path, repeats: Repeats | None = None) -> Broker:
    """One process that replays the same folder."""
    return Broker(
        FileStore(folder),
        FakeResponder(),
        mode="replay",
        cassette="default",
        routes=ROUTES,
        policy=Policy(repeats=repeats),
        new_head=lambda: HEAD,
    )


async def ask(broker: Decider, request: Request, take: int | None = None) -> str:
    """What answers, or the message of a miss."""
    plan = await broker.decide("default", Incoming(request, take=take))
    if isinstance(plan, Replay):
        return plan.interaction.response.body.decode()
    assert isinstance(plan, Miss)
    return plan.message


async def test_the_only_recording_of_a_request_is_answered_without_asking(folder: Path) -> None:
    async with replica_brokers(folder) as brokers:
        said = [await ask(brokers, get("/only")) for _ in range(4)]
        (report,) = await brokers.primary.reports()

        assert said == ["only"] * 4
        assert brokers.asked.decided == []
        assert 0 not in [each.index for each in report.unused]
        assert len(report.unused) == len(EXCHANGES) - 1


@pytest.mark.parametrize("repeats", [None, "last", "miss", "cycle", "first"])
async def test_repeats_come_in_order_whoever_is_asked(
    folder: Path, repeats: Repeats | None
) -> None:
    asked = [get("/turn")] * 5 + [get("/spoken", DE), get("/spoken", EN)] * 3
    asked += [get("/only")] * 2
    async with alone(folder, repeats) as one, replica_brokers(folder, repeats=repeats) as several:
        assert [await ask(one, each) for each in asked] == [
            await ask(several, each) for each in asked
        ]


async def test_many_at_once_get_each_recording_once(folder: Path) -> None:
    async with replica_brokers(folder, repeats="miss", count=3) as brokers:
        said = await asyncio.gather(*[ask(brokers, get("/turn")) for _ in range(6)])

    assert sorted(said)[3:] == ["turn 0", "turn 1", "turn 2"]
    assert all("all used up in this take" in each for each in sorted(said)[:3])


async def test_identifiers_are_bound_by_the_one_that_decides(folder: Path) -> None:
    async with replica_brokers(folder) as brokers:
        asked = (chat(), chat(("mine", "sun")), chat(("mine", "sun")))
        said = [await ask(brokers, each) for each in asked]
        bound = [
            bool(cassette.take.bindings.states())
            for broker in (brokers.primary, *brokers.replicas)
            if (cassette := broker.in_memory.get("default")) is not None
        ]

    assert said[1:] == ["sunny", "sunny again"]
    assert bound == [True, False, False]


@pytest.mark.parametrize("seed", range(0, 40, 4 * step(2)))
async def test_whatever_is_asked_several_say_what_one_says(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    requests = [each for each, _ in EXCHANGES] + [get("/nope"), chat(("mine", "sun"))]
    repeats: Repeats | None = chance.choice([None, "last", "miss", "cycle", "first"])
    async with alone(folder, repeats) as one, replica_brokers(folder, repeats=repeats) as several:
        for _ in range(60):
            what = chance.random()
            if what < 0.05:
                for broker in (one, several.primary):
                    await broker.rewind()
            elif what < 0.1:
                for broker in (one, several.primary):
                    await broker.set_slot("s", "default")
            request, in_slot = chance.choice(requests), chance.random() < 0.3
            takes = [
                broker.slot("s").take if in_slot and "s" in broker.cassettes.control.slots else None
                for broker in (one, several.primary)
            ]
            assert await ask(one, request, takes[0]) == await ask(several, request, takes[1])
        (alike,), (report,) = await one.reports(), await several.primary.reports()

    assert report.unused == alike.unused


async def test_a_new_take_is_in_force_on_all_when_it_is_answered(folder: Path) -> None:
    async with replica_brokers(folder) as brokers:
        before = [await ask(brokers, get("/turn")) for _ in range(3)]
        await brokers.primary.rewind()
        after = [await ask(brokers, get("/turn")) for _ in range(2)]
        await brokers.primary.set_mode("passthrough")
        plans = [await brokers.decide("default", Incoming(get("/turn"))) for _ in range(2)]

    assert (before, after) == (["turn 0", "turn 1", "turn 2"], ["turn 0", "turn 1"])
    assert all(isinstance(each, Ask) for each in plans)


async def test_one_that_joins_later_goes_on_with_what_is_in_force(folder: Path) -> None:
    async with replica_brokers(folder, count=1) as brokers:
        await ask(brokers, get("/turn"))
        await brokers.primary.insert("default")
        await ask(brokers, get("/turn"))
        await brokers.primary.set_slot("s", "default")
        late = Broker(
            FileStore(folder),
            FakeResponder(),
            mode="replay",
            cassette="elsewhere",
            routes=ROUTES,
            policy=Policy(),
            new_head=lambda: HEAD,
            primary=brokers.asked,
        )
        async with late:
            control = late.cassettes.control
            said = await ask(late, get("/turn"))

        assert control == brokers.primary.cassettes.control
        assert said == "turn 1"


async def test_an_ejected_cassette_is_reported_with_what_all_used_and_begins_anew(
    folder: Path,
) -> None:
    async with replica_brokers(folder) as brokers:
        for each in (get("/only"), get("/turn"), get("/turn")):
            await ask(brokers, each)
        report = await brokers.primary.eject()
        loaded = [each.is_loaded("default") for each in (brokers.primary, *brokers.replicas)]
        again = await ask(brokers, get("/turn"))
        (after,) = await brokers.primary.reports()

    assert not {0, 2, 3} & {each.index for each in report.unused}
    assert len(report.unused) == len(EXCHANGES) - 3
    assert loaded == [False] * 3
    assert again == "turn 0"
    assert len(after.unused) == len(EXCHANGES) - 1


async def test_a_changed_file_is_loaded_anew_by_all_once_it_is_noticed(folder: Path) -> None:
    async with replica_brokers(folder) as brokers:
        before = [await ask(brokers, get("/only")) for _ in range(2)]
        await save(
            folder, [(get("/turn"), "new 0"), (get("/turn"), "new 1"), (get("/only"), "new")]
        )
        unnoticed = [await ask(brokers, get("/only")) for _ in range(2)]
        await noticed(brokers)
        after = [await ask(brokers, each) for each in (get("/only"), get("/only"))]
        turns = [await ask(brokers, get("/turn")) for _ in range(2)]

    assert before == unnoticed == ["only"] * 2
    assert after == ["new"] * 2
    assert turns == ["new 0", "new 1"]


async def noticed(brokers: ReplicaBrokers) -> None:
    assert isinstance(brokers.primary.cassettes, MemoryCassettes)
    for _ in range(2):
        await brokers.primary.cassettes.refresh()


async def test_one_that_finds_a_newer_file_waits_until_all_have_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "_RETRY_S", 0.001)
    async with replica_brokers(folder) as brokers, asyncio.TaskGroup() as tasks:
        first = await ask(brokers, get("/turn"))
        await save(folder, [(get("/turn"), "new 0"), (get("/turn"), "new 1")])
        waiting = tasks.create_task(ask(brokers, get("/turn")))
        while not waiting.done():
            await noticed(brokers)

    assert (first, waiting.result()) == ("turn 0", "new 0")


async def test_one_that_never_finds_the_same_file_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "_RETRY_S", 0)
    async with replica_brokers(folder) as brokers:
        await ask(brokers, get("/turn"))
        await save(folder, [(get("/turn"), "new 0")])
        with pytest.raises(StoreAway, match="is being changed: ask again"):
            await ask(brokers, get("/turn"))


async def test_what_is_told_of_a_take_that_has_ended_does_not_count(folder: Path) -> None:
    async with replica_brokers(folder) as brokers:
        await ask(brokers, get("/only"))
        copy = await brokers.asked.load("default")
        own = brokers.primary.cassettes.control.take_of("default")
        await brokers.primary.rewind()
        brokers.asked.note_use(copy.number, own, own, 0)
        brokers.asked.note_use(copy.number + 1, own + 1, own + 1, 0)
        (report,) = await brokers.primary.reports()

    assert len(report.unused) == len(EXCHANGES)


async def test_what_is_used_through_a_slot_is_used_in_its_take(folder: Path) -> None:
    async with replica_brokers(folder) as brokers:
        await brokers.primary.set_slot("s", "default")
        take = brokers.primary.slot("s").take
        await ask(brokers, get("/only"), take)
        cassette = brokers.primary.in_memory["default"]
        own = set(cassette.take.touched)
        with cassette.in_take(take):
            of_slot = set(cassette.take.touched)

    assert (own, of_slot) == (set(), {0})


async def test_a_name_that_the_primary_forgot_and_loaded_again_is_loaded_anew(folder: Path) -> None:
    async with replica_brokers(folder, count=1) as brokers:
        (replica,) = brokers.replicas
        first = await replica.decide("late", Incoming(get("/turn")))
        for number in range(MOST_EMPTY + 1):
            await brokers.primary.prepare(f"made-up-{number}")
        shutil.copy(folder / "default.json", folder / "late.json")
        then = [await replica.decide("late", Incoming(get("/turn"))) for _ in range(2)]

    assert isinstance(first, Miss)
    assert [each.interaction.response.body for each in then if isinstance(each, Replay)] == [
        b"turn 0",
        b"turn 1",
    ]


@pytest.mark.parametrize("size", [READ_AT_ONCE, 64])
async def test_a_large_body_is_looked_up_on_all(tmp_path: Path, size: int) -> None:
    body = dump({"text": "x" * size})
    request = Request("openai", "POST", "/v1/files", JSON, body, "https://up")
    await save(tmp_path, [(request, "one"), (request, "two")])
    async with replica_brokers(tmp_path) as brokers:
        assert [await ask(brokers, request) for _ in range(2)] == ["one", "two"]
        assert [each.large for each in brokers.asked.decided] == [None, None]


async def test_a_body_in_a_file_is_sent_by_its_digest(folder: Path) -> None:
    spool = Spool(str(folder))
    await spool.add(b"y" * 4096)
    file = await spool.finish()
    request = replace(get("/v1/files"), method="POST", file=file)
    async with replica_brokers(folder) as brokers:
        said = await ask(brokers, request)

    assert said.startswith("replay miss: POST /v1/files")
    (sent,) = [each.request.file for each in brokers.asked.decided]
    assert sent is not None
    # Two that hold one temporary file would delete it twice.
    digest = hashlib.sha256(b"y" * 4096).hexdigest()
    assert (sent.digest, sent.size, sent.path, sent.handle) == (digest, 4096, "", None)


async def test_what_nobody_could_answer_is_refused_as_by_one(folder: Path) -> None:
    async with replica_brokers(folder) as brokers:
        with pytest.raises(NoRoute):
            await brokers.decide("default", Incoming(get("/x", route="default"), True))


async def test_a_cassette_that_cannot_be_read_is_told_by_each(folder: Path) -> None:
    (folder / "bad.json").write_text("{")
    async with replica_brokers(folder) as brokers:
        for _ in range(2):
            with pytest.raises(CassetteCorrupt, match=r"bad\.json"):
                await brokers.decide("bad", Incoming(get("/x")))
        await brokers.primary.set_mode("passthrough")
        assert isinstance(await brokers.decide("bad", Incoming(get("/x"))), Ask)


Write = Callable[[Broker], Awaitable[object]]
WRITES: dict[str, Write] = {
    "mode": lambda broker: broker.set_mode("auto"),
    "mode of one": lambda broker: broker.set_mode("record", "default"),
    "insert": lambda broker: broker.insert("default", "record"),
    "slot": lambda broker: broker.set_slot("s", "default", "auto"),
    "rules": lambda broker: broker.add_rules("default", Rules(ignore=("query.x",))),
    "prune": lambda broker: broker.eject("default", prune=True),
    "claim": lambda broker: broker.editor.claim("default"),
    "remove": lambda broker: broker.editor.remove("default"),
    "edit": lambda broker: broker.editor.edit("default", 0, None),
    "append": lambda broker: broker.editor.append("new", [Addition(_recording(0, get("/x"), "x"))]),
    "put": lambda broker: broker.editor.put("new", StoredCassette(HEAD)),
    "head": lambda broker: broker.editor.replace_head("default", HEAD),
}


@pytest.mark.parametrize("what", WRITES)
async def test_what_would_write_is_refused_and_changes_nothing(folder: Path, what: str) -> None:
    def files() -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}

    before = files()
    async with replica_brokers(folder) as brokers:
        await ask(brokers, get("/turn"))
        control = brokers.primary.cassettes.control
        with pytest.raises(AdminError, match="--store sqlite:FILE") as refused:
            await WRITES[what](brokers.primary)
        assert (refused.value.status, refused.value.code) == (409, "several_workers")
        assert brokers.primary.cassettes.control == control
        assert await ask(brokers, get("/turn")) == "turn 1"
    assert files() == before


async def test_other_routes_of_one_origin_answer_too(folder: Path) -> None:
    routes = RouteTable(
        {"openai": Route("openai", "https://up"), "twin": Route("twin", "https://up")}
    )
    async with replica_brokers(folder, routes=routes) as brokers:
        request = replace(get("/turn"), route="twin")
        assert [await ask(brokers, request) for _ in range(2)] == ["turn 0", "turn 1"]
