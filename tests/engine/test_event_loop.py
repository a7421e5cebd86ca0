"""What takes long is not done on the event loop, where all clients would wait for it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.cassette.plan import Incoming, Replay
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead
from tapeway.engine import memory_cassettes
from tapeway.engine.broker import Broker
from tapeway.engine.recorder import Policy
from tapeway.formats.native import document
from tapeway.stores.file.store import FileStore
from tests.support.fakes.broker import HEAD, ROUTES
from tests.support.fakes.live_service import FakeResponder

ASKED = Request("openai", "GET", "/v1/x", base="https://up")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    response = Response(ResponseHead(200), (ResponseChunk(b"x"),))
    items = tuple(Interaction(number, ASKED, response) for number in range(200))
    text = document.save(StoredCassette(CassetteHead("", "run"), items))
    (tmp_path / "x.json").write_bytes(text)
    return tmp_path


def off_the_loop(called: Callable[..., Any], threads: list[bool]) -> Callable[..., Any]:
    """The same, noting whether it was called in another thread than the event loop's."""

    def noted(*args: Any, **rest: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return called(*args, **rest)

    return noted


async def test_a_large_cassette_is_indexed_and_reported_in_a_thread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, list[bool]] = {"CassetteIndex": [], "report_of_index": []}
    for name, noted in threads.items():
        called = getattr(memory_cassettes, name)
        monkeypatch.setattr(memory_cassettes, name, off_the_loop(called, noted))
    broker = Broker(
        FileStore(folder),
        FakeResponder(),
        mode="replay",
        cassette="x",
        routes=ROUTES,
        policy=Policy(),
        new_head=lambda: HEAD,
    )
    async with broker:
        assert isinstance(await broker.decide("x", Incoming(ASKED)), Replay)
        await broker.reports()
        await broker.eject("x")

    assert threads == {"CassetteIndex": [True], "report_of_index": [True, True]}


async def test_a_take_that_begins_while_a_cassette_is_indexed_is_the_one_it_is_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(
        FileStore(folder),
        FakeResponder(),
        mode="replay",
        cassette="x",
        routes=ROUTES,
        policy=Policy(),
        new_head=lambda: HEAD,
    )
    async with broker:
        cassettes = broker.cassettes
        assert isinstance(cassettes, memory_cassettes.MemoryCassettes)
        indexed = cassettes._indexed

        async def slowly(name: str, stored: StoredCassette, take: int) -> Any:
            found = await indexed(name, stored, take)
            await broker.rewind()
            return found

        monkeypatch.setattr(cassettes, "_indexed", slowly)
        await broker.prepare("x")

        loaded = broker.cassette("x")
        assert loaded is not None
        assert loaded.take.number == broker.cassettes.control.take_of("x")
