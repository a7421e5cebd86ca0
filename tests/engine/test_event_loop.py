"""What takes long is not done on the event loop, where all clients would wait for it."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.cassette import index
from tapeway.core.cassette.credential_index import CredentialIndex
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.matching import document as document_of_request
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.engine.broker import Broker
from tapeway.engine.cassettes import loaded as memory_cassettes
from tapeway.engine.recording.selection import Policy
from tapeway.formats.native import bodies, document
from tapeway.ports import CassetteStore
from tapeway.providers import api_call
from tapeway.stores import memory
from tapeway.stores.file.store import FileStore
from tapeway.stores.opening import open_store
from tests.support.fakes.broker import HEAD, ROUTES
from tests.support.fakes.live_service import FakeResponder
from tests.support.reuse import REUSED

ASKED = Request("openai", "GET", "/v1/x", base="https://up")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    response = Response(ResponseHead(200), b"x")
    items = tuple(Interaction(number, ASKED, response) for number in range(200))
    text = document.save(StoredCassette(CassetteHead("", "run"), items))
    (tmp_path / "x.json").write_bytes(text)
    return tmp_path


LARGE = replace(
    ASKED,
    method="POST",
    headers=((b"Content-Type", b"application/json"),),
    body=b'{"model":"m","input":[%b]}' % b",".join([b"0.25"] * 100_000),
)


def broker_on(store: CassetteStore, mode: Mode) -> Broker:
    return Broker(
        store,
        FakeResponder(),
        mode=mode,
        cassette="x",
        routes=ROUTES,
        policy=Policy(),
        new_head=lambda: HEAD,
        rules=REUSED,
    )


def off_the_loop(called: Callable[..., Any], threads: list[bool]) -> Callable[..., Any]:
    """The same, noting whether it was called in another thread than the event loop's."""

    def noted(*args: Any, **rest: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return called(*args, **rest)

    return noted


async def test_a_large_cassette_is_indexed_and_reported_in_a_thread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed: list[bool] = []
    reported: list[bool] = []
    in_thread = off_the_loop(CassetteIndex, indexed)
    monkeypatch.setattr(memory_cassettes, "CassetteIndex", in_thread)
    for name in ("unused", "duplicates"):
        read = off_the_loop(getattr(CassetteIndex, name), reported)
        monkeypatch.setattr(CassetteIndex, name, read)
    broker = broker_on(FileStore(folder), "replay")
    async with broker:
        assert isinstance(await broker.decide("x", Incoming(ASKED)), Replay)
        await broker.reports()
        await broker.eject("x")

    assert indexed == [True]
    assert reported == [True] * 4


async def test_credentials_of_a_large_cassette_are_indexed_in_a_thread_before_a_request_is_missed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    monkeypatch.setattr(index, "CredentialIndex", off_the_loop(CredentialIndex, threads))
    async with broker_on(FileStore(folder), "replay") as broker:
        assert isinstance(await broker.decide("x", Incoming(ASKED)), Replay)
        missed = replace(ASKED, target="/v1/x?api_key=sk-1a2b3c4d5e6f7a8b9c0d")
        assert isinstance(await broker.decide("x", Incoming(missed)), Replay)
        assert isinstance(await broker.decide("x", Incoming(replace(ASKED, target="/y"))), Miss)

    assert threads == [True]


async def test_a_large_cassette_gets_rules_and_edits_in_a_thread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    key = off_the_loop(recording_key, threads)
    async with broker_on(FileStore(folder), "replay") as broker:
        assert isinstance(await broker.decide("x", Incoming(ASKED)), Replay)
        monkeypatch.setattr(index, "recording_key", key)
        await broker.add_rules("x", Rules(ignore=("query.nonce",)))
        assert len(threads) == 200
        await broker.editor.edit("x", 7, None)
        assert len(threads) > 400
        asked = Incoming(replace(ASKED, target="/v1/x?nonce=1"))
        assert isinstance(await broker.decide("x", asked), Replay)

    assert all(threads)


async def test_a_take_that_begins_while_a_cassette_is_indexed_is_the_one_it_is_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = broker_on(FileStore(folder), "replay")
    async with broker:
        cassettes = broker.source
        assert isinstance(cassettes, memory_cassettes.Loaded)
        # The only step between reading and serving, which a rewind is to interrupt.
        indexed = cassettes._indexed

        async def slowly(name: str, stored: StoredCassette, take: int, layers: Any) -> Any:
            found = await indexed(name, stored, take, layers)
            await broker.rewind()
            return found

        monkeypatch.setattr(cassettes, "_indexed", slowly)
        await broker.prepare("x")

        loaded = broker.cassette("x")
        assert loaded is not None
        assert loaded.take.number == broker.source.control.take_of("x")


@pytest.mark.parametrize("url", ["memory:", "sqlite:{}/x.db"])
@pytest.mark.parametrize("guessed", [False, True])
async def test_a_body_above_256_kib_is_read_redacted_and_recorded_in_threads(
    url: str, guessed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    redacted: list[bool] = []
    redact = off_the_loop(RequestRedaction.redact_and_learn, redacted)
    monkeypatch.setattr(RequestRedaction, "redact_and_learn", redact)
    for module, name in (
        *((document_of_request, "read_json"), (bodies, "parse"), (api_call, "_fields")),
    ):
        monkeypatch.setattr(module, name, off_the_loop(getattr(module, name), threads))
    broker = broker_on(open_store(url.format(tmp_path)), "auto")
    asked = Incoming(LARGE, guessed)
    other = asked._replace(request=replace(LARGE, body=LARGE.body.replace(b"0.25", b"0.5", 1)))
    async with broker:
        plan = await broker.decide("x", asked)
        assert isinstance(plan, LiveCall)
        assert (await broker.recorder.perform(plan)).outcome == "recorded"
        assert isinstance(await broker.decide("x", asked), Replay)
        await broker.set_mode("replay")
        before = len(redacted)
        # What a recording answers is not redacted.
        assert isinstance(await broker.decide("x", asked), Replay)
        assert not redacted[before:]
        assert isinstance(await broker.decide("x", other), Miss)

    assert len(threads) > 6
    assert all(threads)
    assert redacted
    assert all(redacted)


async def test_a_large_cassette_in_memory_is_numbered_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[bool] = []
    # The work of the save, whose thread no caller sees.
    monkeypatch.setattr(memory, "_numbered", off_the_loop(memory._numbered, threads))
    store = memory.MemoryStore()
    await store.save(
        "x", StoredCassette(HEAD, (Interaction(7, ASKED, Response(ResponseHead(200))),))
    )
    await store.release("x")

    assert threads == [True, True]
