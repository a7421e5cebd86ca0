"""The turns of a cassette, page by page."""

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.ports import CassetteStore
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
    assert [(each["number"], each["interaction"]) for each in turns] == [(0, 0), (1, 1), (2, 2)]
    assert [each["prefix"] for each in turns] == [
        {"kept": 0, "of": 0, "breaks_at": None},
        {"kept": 1, "of": 1, "breaks_at": None},
        {"kept": 3, "of": 3, "breaks_at": None},
    ]
    assert [each["head"] for each in turns[2]["new"]] == ["q2", "a2"]
    assert first["sums"]["turns"] == second["sums"]["turns"] == 3
    assert second["next"] is None


async def test_one_conversation_may_be_asked_for() -> None:
    store = MemoryStore()
    calls = (chat(0, [user("one")], "1"), chat(1, [user("two")], "2"))
    await store.save("default", StoredCassette(HEAD, calls))
    async with world(store=store) as found:
        page = await found.got(f"{PATH}?conversation=1")

    assert [each["interaction"] for each in page["turns"]] == [1]
