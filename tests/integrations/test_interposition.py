"""interposition's own Broker over tapeway's stores."""

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from interposition import (
    Broker,
    Cassette,
    CassetteLoadError,
    CassetteSaveError,
    Interaction,
    InteractionNotFoundError,
    InteractionRequest,
    JsonFileCassetteStore,
    RequestFingerprint,
    ResponseChunk,
)
from interposition.services import LiveResponder

from tapeway.formats.native import document
from tapeway.integrations.interposition import TapewayCassetteStore, ThreadSafeBroker
from tapeway.stores.memory import MemoryStore
from tests.formats.other_tools.example_files import load, text


def asked(
    target: str = "/v1/x", body: bytes = b"{}", *headers: tuple[str, str], protocol: str = "http"
) -> InteractionRequest:
    return InteractionRequest(
        protocol=protocol, action="POST", target=target, headers=headers, body=body
    )


def answered(
    request: InteractionRequest, *chunks: ResponseChunk, metadata: tuple[tuple[str, str], ...] = ()
) -> Interaction:
    return Interaction(
        request=request,
        fingerprint=request.fingerprint(),
        response_chunks=chunks,
        metadata=metadata,
    )


def chunk(sequence: int, data: bytes, *metadata: tuple[str, str]) -> ResponseChunk:
    return ResponseChunk(data=data, sequence=sequence, metadata=metadata)


def numbered() -> LiveResponder:
    """A service that never says the same twice."""
    count = 0
    turn = threading.Lock()

    def answer(request: InteractionRequest) -> Iterable[ResponseChunk]:
        nonlocal count
        with turn:
            count += 1
            now = count
        yield chunk(0, b"answer ", ("status_code", "200"))
        yield chunk(1, b"%d" % now)

    return answer


def said(broker: Broker, request: InteractionRequest) -> bytes:
    return b"".join([piece.data for piece in broker.replay(request)])


AWKWARD = [
    answered(
        asked("/v1/x?b=1&a=é", b'{"b": 1.0,"a":1e5}', ("X-A", "1"), ("x-a", "2")), chunk(0, b"")
    ),
    answered(
        asked("/gzip", b"\x1f\x8b\xff\x00", ("Content-Encoding", "gzip"), ("Host", "h")),
        chunk(0, b"\xff\xfe", ("status_code", "201"), ("took", "1")),
        chunk(1, b""),
        chunk(2, b"\x80", ("last", "")),
        metadata=(("who", "me"), ("who", "you")),
    ),
    answered(asked("topic/ü 😀", b"\x00", ("a b", "c\nd"), protocol="mqtt"), chunk(0, b"\xff")),
    answered(asked("https://h:1/absolute#fragment", b"a=1&b=2"), chunk(0, b'{"a":1}')),
    answered(asked("no-slash", b"", protocol="HTTP"), chunk(0, b"x", ("status_code", "many"))),
]


def test_any_interaction_comes_back_as_it_was(address: str, tmp_path: Path) -> None:
    store = MemoryStore() if address == "memory:" else address
    with TapewayCassetteStore(store, "suite/one", create_if_missing=True) as first:
        first.save(Cassette(interactions=tuple(AWKWARD)))
        # In this order also where it is read by the one who wrote it.
        assert first.load().interactions == tuple(AWKWARD)
    with TapewayCassetteStore(store, "suite/one") as second:
        assert second.load().interactions == tuple(AWKWARD)


def test_the_broker_records_replays_and_goes_on_recording(address: str) -> None:
    store = MemoryStore() if address == "memory:" else address
    with TapewayCassetteStore(store, "c", create_if_missing=True) as one:
        broker = Broker.from_store(one, mode="auto", live_responder=numbered())
        assert [said(broker, asked(target)) for target in ("/a", "/b", "/a")] == [
            *(b"answer 1", b"answer 2", b"answer 1")
        ]
    with TapewayCassetteStore(store, "c") as two:
        broker = Broker.from_store(two, mode="record", live_responder=numbered())
        assert said(broker, asked("/a")) == b"answer 1"
        assert said(broker, asked("/c")) == b"answer 2"
    with TapewayCassetteStore(store, "c") as three:
        broker = Broker.from_store(three)
        assert [interaction.request.target for interaction in broker.cassette.interactions] == [
            *("/a", "/b", "/a", "/c")
        ]
        # The first recording answers for ever.
        assert [said(broker, asked("/a")) for _ in range(3)] == [b"answer 1"] * 3
        with pytest.raises(InteractionNotFoundError):
            said(broker, asked("/d"))


@pytest.mark.parametrize("broker_of", [Broker, ThreadSafeBroker])
def test_a_response_that_could_not_be_saved_is_not_added_to_the_cassette(
    broker_of: type[Broker], tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        (tmp_path / "store").write_text("a file where the folder should be")
    else:
        (tmp_path / "store").mkdir(mode=0o500)
    store = TapewayCassetteStore(str(tmp_path / "store"), "c")
    broker = broker_of(Cassette(interactions=()), "auto", numbered(), store)

    with pytest.raises(CassetteSaveError) as refused:
        next(iter(broker.replay(asked())))

    assert str(tmp_path / "store") in str(refused.value)
    assert refused.value.__cause__ is not None
    store.close()


def test_a_response_that_could_not_be_saved_is_not_replayed(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    with TapewayCassetteStore(str(tmp_path / "store"), "c") as store:
        broker = ThreadSafeBroker(Cassette(interactions=()), "auto", numbered(), store)
        with pytest.raises(CassetteSaveError):
            said(broker, asked())
        (tmp_path / "store").unlink()

        assert said(broker, asked()) == b"answer 2"
        assert len(store.load().interactions) == 1


def test_an_empty_cassette_that_is_saved_is_there_and_removes_nothing(
    address: str, tmp_path: Path
) -> None:
    given = MemoryStore() if address == "memory:" else address
    with TapewayCassetteStore(given, "c") as store:
        store.save(Cassette(interactions=()))
        assert store.load().interactions == ()
    with TapewayCassetteStore(given, "c") as store:
        assert store.load().interactions == ()
        store.save(Cassette(interactions=(AWKWARD[0],)))
        store.save(Cassette(interactions=()))
        assert store.load().interactions == (AWKWARD[0],)


def test_a_missing_or_broken_cassette_cannot_be_loaded(tmp_path: Path) -> None:
    with TapewayCassetteStore(str(tmp_path), "c") as store:
        with pytest.raises(CassetteLoadError, match="create_if_missing"):
            store.load()
        (tmp_path / "c.json").write_text('{"version": "1", "interactions": [}')
        with pytest.raises(CassetteLoadError, match=r"c\.json line 1") as refused:
            store.load()
    assert refused.value.path == Path(f"file:{tmp_path}#c")


def test_a_save_adds_only_what_is_new(tmp_path: Path) -> None:
    with TapewayCassetteStore(str(tmp_path), "c", create_if_missing=True) as store:
        broker = Broker.from_store(store, mode="record", live_responder=numbered())
        sizes = []
        for _ in range(40):
            said(broker, asked())
            sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
    grown = {now - before for before, now in pairwise(sizes)}
    assert max(grown) < 2 * min(grown)


def test_equal_recordings_loaded_by_others_are_not_added_again(tmp_path: Path) -> None:
    other = JsonFileCassetteStore(tmp_path / "theirs.json", create_if_missing=True)
    broker = Broker.from_store(other, mode="record", live_responder=numbered())
    for target in ("/a", "/b", "/a"):
        said(broker, asked(target))
    wanted = other.load()

    for _ in range(2):
        with TapewayCassetteStore(str(tmp_path / "ours"), "c", create_if_missing=True) as store:
            store.save(other.load())
            assert store.load() == wanted
            # One that is recorded again is another recording.
            again = wanted.interactions[0].model_copy(deep=True)
            store.save(Cassette(interactions=(*store.load().interactions, again)))
            assert len(store.load().interactions) == 4
            store.replace(wanted)
            assert store.load() == wanted


def test_the_file_of_a_cassette_store_comes_back_from_a_cassette(tmp_path: Path) -> None:
    """The way back that the documentation names: tapeway itself writes no such file."""
    theirs = tmp_path / "theirs.json"
    theirs.write_bytes(text("interposition.json"))
    cassette = load("interposition", theirs.read_bytes()).cassette
    (tmp_path / "c.json").write_bytes(document.save(cassette))
    again = JsonFileCassetteStore(tmp_path / "again.json")

    with TapewayCassetteStore(str(tmp_path), "c") as store:
        again.save(store.load())

    assert again.load() == JsonFileCassetteStore(theirs).load()


@pytest.mark.slow
def test_threads_that_share_a_broker_lose_nothing(address: str) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        store = TapewayCassetteStore(address, "c", create_if_missing=True)
        broker = ThreadSafeBroker.from_store(store, mode="record", live_responder=numbered())
        heard: list[bytes] = []

        def record() -> None:
            heard.extend([said(broker, asked(f"/{turn % 7}")) for turn in range(24)])

        threads = [threading.Thread(target=record) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = [
            b"".join([piece.data for piece in interaction.response_chunks])
            for interaction in store.load().interactions
        ]
        assert len(stored) == 192
        assert Counter(stored) == Counter(heard)
        assert store.load() == broker.cassette
        store.close()
    finally:
        sys.setswitchinterval(before)


def test_threads_with_a_plain_broker_lose_nothing_they_saved() -> None:
    # Each passes what it has seen, which is not what the others have.
    base = answered(asked("/base"), chunk(0, b"x"))
    one, other = answered(asked("/same"), chunk(0, b"x")), answered(asked("/same"), chunk(0, b"x"))
    with TapewayCassetteStore("memory:", "c", create_if_missing=True) as store:
        store.save(Cassette(interactions=(base, one)))
        store.save(Cassette(interactions=(base, other)))
        store.save(Cassette(interactions=(base,)))

        assert store.load().interactions == (base, one, other)


def test_each_stored_interaction_stands_for_one_given(tmp_path: Path) -> None:
    one = answered(asked("/a"), chunk(0, b"x"))
    with TapewayCassetteStore(str(tmp_path), "c") as store:
        store.save(Cassette(interactions=(one,)))
    copies = tuple([one.model_copy(deep=True) for _ in range(3)])
    with TapewayCassetteStore(str(tmp_path), "c") as store:
        store.save(Cassette(interactions=copies))

        assert store.load().interactions == copies


async def test_it_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    with TapewayCassetteStore(str(tmp_path), "c", create_if_missing=True) as store:
        broker = Broker.from_store(store, mode="auto", live_responder=numbered())
        assert said(broker, asked()) == b"answer 1"
        assert await asyncio.to_thread(said, broker, asked()) == b"answer 1"


def test_saved_interactions_are_durable_without_a_close(tmp_path: Path) -> None:
    store = TapewayCassetteStore(str(tmp_path), "c", create_if_missing=True)
    broker = Broker.from_store(store, mode="auto", live_responder=numbered())
    assert said(broker, asked()) == b"answer 1"

    with TapewayCassetteStore(str(tmp_path), "c") as other:
        assert said(Broker.from_store(other), asked()) == b"answer 1"
    store.close()


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        (asked("/x", b"{}", ("Authorization", "Bearer abcdefgh12345678")), "request.headers"),
        (asked("/x?api_key=abcdefgh12345678"), "request.url"),
        (asked("t", b'{"password":"abcdefgh12345678"}', protocol="amqp"), "request.body"),
        (
            asked("/x", b"{}", ("Proxy-Authorization", "Basic YWJjZGVmZ2gxMjM0NTY3OA==")),
            "headers",
        ),
    ],
)
def test_a_request_with_a_credential_is_refused_with_its_place(
    request_: InteractionRequest, place: str, tmp_path: Path
) -> None:
    with TapewayCassetteStore(str(tmp_path), "c", create_if_missing=True) as store:
        broker = Broker.from_store(store, mode="record", live_responder=numbered())
        with pytest.raises(CassetteSaveError, match="nothing was recorded: the credential") as no:
            said(broker, request_)
        assert place in str(no.value)
        assert "abcdefgh12345678" not in str(no.value)
        assert "YWJjZGVm" not in str(no.value)
    assert not list(tmp_path.rglob("*.json"))


def test_secrets_are_stored_if_asked_for(tmp_path: Path) -> None:
    request = asked("/x", b"{}", ("Authorization", "Bearer abcdefgh12345678"))
    where = (str(tmp_path), "c")
    with TapewayCassetteStore(*where, create_if_missing=True, keep_secrets=True) as store:
        said(Broker.from_store(store, mode="record", live_responder=numbered()), request)
        assert said(Broker.from_store(store), request) == b"answer 1"


def test_a_stored_response_is_redacted_and_the_caller_gets_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "4f6b2c9d8e1a7350")
    real = b'{"access_token":"abcdefgh12345678","id":1,"said":"4f6b2c9d8e1a7350"}'
    with TapewayCassetteStore(str(tmp_path), "c", create_if_missing=True) as store:
        broker = Broker.from_store(
            store, mode="record", live_responder=lambda _: [chunk(0, real[:9]), chunk(1, real[9:])]
        )
        assert said(broker, asked()) == real
        replayed = said(Broker.from_store(store), asked())
    assert json.loads(replayed)["id"] == 1
    assert b"abcdefgh12345678" not in replayed
    assert b"4f6b2c9d8e1a7350" not in (tmp_path / "c.json").read_bytes()


def test_the_fingerprint_is_interpositions(address: str) -> None:
    request = InteractionRequest(
        protocol="http",
        action="POST",
        target="/v1/chat/completions?x=1",
        headers=(("content-type", "application/json"),),
        body='{"q":"héllo"}'.encode(),
    )
    wanted = "751df62f5a809407419f82ef3f8c220fc423321a833331e01c1855f7d4d325a7"
    with TapewayCassetteStore(address, "c", create_if_missing=True) as store:
        store.save(Cassette(interactions=(answered(request, chunk(0, b"x")),)))
        found = store.load().find_interaction(RequestFingerprint(value=wanted))
    assert found is not None
