"""The turns and messages of a cassette, page by page."""

from pathlib import Path

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.admin.admin_and_proxy import world
from tests.conversations.recorded_calls import assistant, chat, user

HEAD = CassetteHead("then", "run")
PATH = "/api/v1/cassettes/default/turns"


async def test_turns_come_in_pages_with_the_sums_of_all(store: CassetteStore) -> None:
    history, calls = list[object](), []
    for at in range(3):
        history.append(user(f"q{at}"))
        calls.append(chat(at, list(history), f"a{at}"))
        history.append(assistant(f"a{at}"))
    async with world(store=store, mode="replay") as found:
        await store.save("default", StoredCassette(HEAD, tuple(calls)))
        first = await found.got(f"{PATH}?limit=2")
        second = await found.got(f"{PATH}?limit=2&after={first['next']}")

    turns = first["turns"] + second["turns"]
    assert [(turn["number"], turn["interaction"]) for turn in turns] == [(0, 0), (1, 1), (2, 2)]
    assert [turn["prefix"] for turn in turns] == [
        {"kept": 0, "of": 0, "breaks_at": None},
        {"kept": 1, "of": 1, "breaks_at": None},
        {"kept": 3, "of": 3, "breaks_at": None},
    ]
    assert [message["head"] for message in turns[2]["new"]] == ["q2", "a2"]
    assert first["sums"]["turns"] == second["sums"]["turns"] == 3
    assert second["next"] is None


async def test_one_conversation_may_be_asked_for() -> None:
    store = MemoryStore()
    calls = (chat(0, [user("one")], "1"), chat(1, [user("two")], "2"))
    await store.save("default", StoredCassette(HEAD, calls))
    async with world(store=store) as found:
        page = await found.got(f"{PATH}?conversation=1")

    assert [turn["interaction"] for turn in page["turns"]] == [1]


async def test_a_cassette_is_read_once_for_all_pages_of_its_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read = FileStore(tmp_path), list[str]()
    load = store.load

    async def noted(name: str, *, writable: bool) -> StoredCassette | None:
        read.append(name)
        return await load(name, writable=writable)

    monkeypatch.setattr(store, "load", noted)
    calls = tuple([chat(at, [user(f"q{at}")], f"a{at}") for at in range(6)])
    where = "/api/v1/cassettes/large"
    async with world(store=store, mode="replay") as found:
        await store.save("large", StoredCassette(HEAD, calls))
        await found.got(f"{where}/turns?index=true")
        for after in range(4):
            await found.got(f"{where}/turns?after={after}&limit=1")
            await found.got(f"{where}/messages?after={after}&limit=1")
        assert read == ["large"]
        await store.save("large", StoredCassette(HEAD, calls[:1]))
        assert (await found.got(f"{where}/turns"))["sums"]["turns"] == 1

    assert read == ["large", "large"]


async def test_messages_of_a_range_or_with_a_text_may_be_asked_for() -> None:
    store = MemoryStore()
    calls = tuple([chat(at, [user(f"Question {at}")], f"answer {at}") for at in range(4)])
    await store.save("default", StoredCassette(HEAD, calls))
    where = "/api/v1/cassettes/default/messages"
    async with world(store=store) as found:
        middle = await found.got(f"{where}?first=1&last=2&limit=3")
        said = await found.got(f"{where}?text=QUESTION&limit=2")

    assert [message["content"] for message in middle["messages"]] == [
        "Question 1",
        "answer 1",
        "Question 2",
    ]
    assert (middle["found"], middle["next"]) == (4, middle["messages"][-1]["number"])
    assert [message["content"] for message in said["messages"]] == ["Question 0", "Question 1"]
    assert said["found"] == 4
