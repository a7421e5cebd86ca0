"""Reading what was said in the LLM calls of a cassette."""

import asyncio
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tapeway.conversations.transcript import Transcript, transcript
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.admin.admin_and_proxy import world
from tests.conversations.recorded_calls import CHAT, assistant, call, chat, user

PATH = "/api/v1/cassettes/default/messages"
HEAD = CassetteHead("then", "run")
_PATIENCE_S = 60.0


def held(*calls: Interaction) -> StoredCassette:
    return StoredCassette(HEAD, calls)


def conversation(turns: int) -> list[Interaction]:
    history: list[Any] = []
    made: list[Interaction] = []
    for at in range(turns):
        history.append(user(f"q{at}"))
        made.append(chat(at, list(history), f"a{at}"))
        history.append(assistant(f"a{at}"))
    return made


@pytest.fixture(params=[True, False], ids=["loaded", "not in"])
def loaded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_what_was_said_is_told_in_order_and_does_not_bring_the_cassette_in(
    loaded: bool,
) -> None:
    store = MemoryStore()
    await store.save("default", held(*conversation(2)))

    async with world(store=store) as found:
        if loaded:
            await found.done("POST", "/api/v1/insert", {"cassette": "default"})
        page = await found.got(PATH)
        status = await found.got("/api/v1/status")

    assert [
        (message["number"], message["role"], message["content"]) for message in page["messages"]
    ] == [
        (0, "user", "q0"),
        (1, "assistant", "a0"),
        (2, "user", "q1"),
        (3, "assistant", "a1"),
    ]
    assert page["messages"][3] == {
        "number": 3,
        "conversation": 0,
        "interaction": 1,
        "role": "assistant",
        "content": "a1",
        "timestamp": "2026-11-21T20:35:14+00:00",
        "model": "m",
    }
    assert (page["left_out"], page["next"]) == ([], None)
    assert bool(status["cassettes"]) is loaded


async def test_pages_hold_each_message_once() -> None:
    store = MemoryStore()
    await store.save("default", held(*conversation(3)))

    async with world(store=store) as found:
        seen: list[str] = []
        after = ""
        for _ in range(2):
            page = await found.got(f"{PATH}?limit=4{after}")
            seen += [message["content"] for message in page["messages"]]
            after = f"&after={page['next']}"
        assert (seen, page["next"]) == (["q0", "a0", "q1", "a1", "q2", "a2"], None)
        assert (await found.got(f"{PATH}?after=99"))["messages"] == []
        assert (await found.got(f"{PATH}?limit=6"))["next"] is None


async def test_one_conversation_is_told_alone() -> None:
    store = MemoryStore()
    await store.save("default", held(*conversation(1), chat(1, [user("other")], "yes")))

    async with world(store=store) as found:
        page = await found.got(f"{PATH}?conversation=1&limit=1")
        rest = await found.got(f"{PATH}?conversation=1&after={page['next']}")

    assert [message["content"] for message in page["messages"]] == ["other"]
    assert [message["content"] for message in rest["messages"]] == ["yes"]


async def test_large_bodies_are_read_and_too_large_ones_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    asked = json.dumps({"messages": [user("x" * 2_000_000)]}).encode()
    small = await store.keep("default", [asked])
    large = await store.keep("default", [b" " * 9_000_000])
    answer = chat(0, [user("a")], "A").response
    files = [
        BodyFile(temporary.path, temporary.size, temporary.digest) for temporary in (small, large)
    ]
    requests = [Request("openai", "POST", CHAT, file=file) for file in files]
    calls = [Interaction(at, request, answer) for at, request in enumerate(requests)]
    await store.save("default", held(*calls))
    await store.release("default")

    async with world(store=store) as found:
        page = await found.got(PATH)

    assert [len(message["content"]) for message in page["messages"]] == [2_000_000, 1]
    assert page["left_out"] == [
        {"interaction": 1, "reason": "its request has 9000000 bytes, too many to be read here"}
    ]


async def test_others_are_answered_while_a_history_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()

    def slow(interactions: Iterable[AnyInteraction]) -> Transcript:
        assert answered.wait(_PATIENCE_S), "nobody else was answered meanwhile"
        return transcript(interactions)

    monkeypatch.setattr("tapeway.conversations.transcript.transcript", slow)
    store = MemoryStore()
    await store.save("default", held(*conversation(2)))

    async with world(store=store) as found, asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(found.got(PATH))
        await found.got("/healthz")
        answered.set()
        page = await reading

    assert len(page["messages"]) == 4


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/cassettes/nowhere/messages", 404, "no_cassette"),
        ("/api/v1/cassettes/a%20b/messages", 400, "bad_cassette_name"),
        (f"{PATH}?limit=0", 400, "bad_query"),
        (f"{PATH}?after=x", 400, "bad_query"),
        (f"{PATH}?role=user", 400, "bad_query"),
    ],
)
async def test_what_cannot_be_told_is_refused(path: str, status: int, code: str) -> None:
    store = MemoryStore()
    await store.save("default", held(call(0, "/v1/embeddings", {"input": "x"}, {})))

    async with world(store=store) as found:
        response = await found.call("GET", path)
        assert (await found.got(PATH))["messages"] == []

    assert response.status == status
    assert (await response.json())["error"]["code"] == code
