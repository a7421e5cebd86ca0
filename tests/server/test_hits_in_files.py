"""Plain hits over a large cassette, whose recordings stay in their file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats.native import document
from tapeway.server import prepared_answers
from tapeway.stores.file import snapshot
from tapeway.stores.file.store import FileStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.test_hits import answer as at_once

JSON = ((b"Content-Type", b"application/json"),)
COUNT = 6


@pytest.fixture(autouse=True)
def small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SMALLEST_FILE", 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A cassette with some answers."""
    items = [
        Interaction(
            number,
            Request("default", "POST", "/ask", JSON, body(number)),
            Response.of_chunks(ResponseHead(200, "OK", JSON), [(answer(number), 0.0)]),
        )
        for number in range(COUNT)
    ]
    found = tmp_path / "default.json"
    found.write_bytes(document.save(StoredCassette(CassetteHead("", "run"), tuple(items))))
    return found


def body(number: int) -> bytes:
    return b'{"n": %d}' % number


def answer(number: int) -> bytes:
    return b'{"answer": %d}' % number


def ask(number: int) -> bytes:
    head = b"POST /ask HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body(number)) + body(number)


@asynccontextmanager
async def replaying(file: Path, mode: Mode = "replay") -> AsyncIterator[RunningProxy]:
    store = FileStore(file.parent)
    async with running_proxy("http://127.0.0.1:9", mode=mode, store=store) as proxy:
        await proxy.broker.prepare()
        yield proxy


def asked(proxy: RunningProxy, number: int) -> bytes:
    """The body of what answers at once, b"" where nothing does."""
    return (at_once(proxy, ask(number)) or b"").rpartition(b"\r\n\r\n")[2]


def bodies_known(proxy: RunningProxy) -> int:
    cassette = proxy.broker.cassette()
    assert cassette is not None
    assert all(isinstance(recording, LazyInteraction) for recording in cassette)
    # What is remembered only makes answers quicker: no answer shows how much there is.
    return sum([len(keys) for keys in cassette.bodies._keys.values()])


async def test_recordings_in_a_file_are_answered_at_once(file: Path) -> None:
    async with replaying(file) as proxy:
        assert bodies_known(proxy) == 0
        for number in (*range(COUNT), *range(COUNT)):
            assert asked(proxy, number) == answer(number)
        assert bodies_known(proxy) == COUNT


async def test_what_is_remembered_of_them_is_bounded(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replaying(file) as proxy:
        assert asked(proxy, 0) == answer(0)
        assert proxy.proxy.hits is not None
        # Nor does an answer show how large a prepared one is.
        size = proxy.proxy.hits._prepared.size
        assert size > len(body(0)) + len(answer(0))
        monkeypatch.setattr(prepared_answers, "MOST_PREPARED", 2 * size)
        for number in (*range(COUNT), *range(COUNT)):
            assert asked(proxy, number) == answer(number)
            assert 1 <= bodies_known(proxy) <= 3


@pytest.mark.parametrize("mode", ["replay", "auto"])
async def test_an_edit_in_place_is_not_answered_from_what_was_there(file: Path, mode: Mode) -> None:
    async with replaying(file, mode) as proxy:
        assert asked(proxy, 0) == answer(0)
        file.write_bytes(file.read_bytes().replace(answer(5), b'{"answer": 7}'))

        assert asked(proxy, 5) == b""
        async with proxy.connect() as client:
            await client.send(ask(5))
            client.finish()
            said = await client.rest()
        if mode == "replay":
            assert said.endswith(b'\r\n\r\n{"answer": 7}'), said
            assert asked(proxy, 0) == answer(0)
        else:
            assert said.startswith(b"HTTP/1.1 409 ")
            assert b"was changed in place" in said
