"""What keeps recordings from being stored is found before an upstream is paid for them."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tapeway.core.cassette.plan import Incoming
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.engine.broker import Broker
from tapeway.engine.recording.selection import Policy
from tapeway.errors import StoreAway, StoreError, StoreFull
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.remote.client import address_of
from tapeway.stores.remote.store import RemoteStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, recording
from tests.stores.remote.far_side import far_side, lead_to
from tests.stores.small_disks import read_only, small_disk
from tests.support.fakes.broker import serve
from tests.support.fakes.live_service import FakeResponder

ON_DISK: list[Callable[[Path], CassetteStore]] = [
    FileStore,
    lambda folder: SqliteStore(folder / "cassettes.db"),
]
ROUTES = RouteTable({}, Route("default", "http://up"))


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeway.engine.store_check.FRESH_S", -1.0)


def broker_over(store: CassetteStore, responder: FakeResponder, mode: Mode = "auto") -> Broker:
    return Broker(
        store,
        responder,
        mode=mode,
        cassette="default",
        routes=ROUTES,
        policy=Policy(),
        new_head=lambda: HEAD,
    )


def asked(path: str) -> Incoming:
    return Incoming(Request("default", "GET", path, base="http://up"))


@pytest.mark.parametrize("make", ON_DISK, ids=["file", "sqlite"])
async def test_looking_leaves_nothing_behind(
    tmp_path: Path, make: Callable[[Path], CassetteStore]
) -> None:
    store = make(tmp_path)
    await store.open()
    await store.append("x", HEAD, recording(0))
    before = sorted(tmp_path.rglob("*"))

    await store.check_writes()
    await store.check_writes("x")

    assert sorted(tmp_path.rglob("*")) == before
    await store.close()


async def test_a_folder_that_does_not_exist_yet_is_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    await FileStore(tmp_path / "new" / "er").check_writes()
    with read_only(tmp_path / "locked"), pytest.raises(StoreError, match="locked: could not write"):
        await FileStore(tmp_path / "locked" / "new").check_writes()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("make", ON_DISK, ids=["file", "sqlite"])
async def test_a_disk_that_cannot_be_written_is_noticed(
    tmp_path: Path, make: Callable[[Path], CassetteStore]
) -> None:
    store = make(tmp_path)
    await store.open()
    await store.append("x", HEAD, recording(0))
    with read_only(tmp_path), pytest.raises(StoreError) as refused:
        await store.check_writes("x")

    assert (refused.value.status, str(tmp_path) in refused.value.message) == (503, True)
    await store.check_writes("x")
    await store.close()


@pytest.mark.parametrize("make", ON_DISK, ids=["file", "sqlite"])
async def test_a_full_disk_is_paid_for_once(
    tmp_path: Path, make: Callable[[Path], CassetteStore]
) -> None:
    disk, responder = tmp_path / "disk", FakeResponder()
    with small_disk(disk, 1024):
        async with broker_over(make(disk), responder) as broker:
            assert (await serve(broker, "default", asked("/0"))).outcome == "recorded"
            assert await broker.write_error() is None
            fill(disk / "filler")
            # A small recording may still fit into the last block of a file.
            paid = [len(responder.asked) for _ in range(3) if await refused_as_full(broker)]
            unready = await broker.write_error()
            (disk / "filler").unlink()
            assert (await serve(broker, "default", asked("/after"))).outcome == "recorded"

    assert len(paid) == 3
    assert len(set(paid)) == 1
    assert isinstance(unready, StoreFull)
    assert str(disk) in unready.message


async def refused_as_full(broker: Broker) -> bool:
    """Whether one of many requests was refused since the disk is full."""
    for number in range(100):
        try:
            await serve(broker, "default", asked(f"/{number}"))
        except StoreFull:
            return True
    return False


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass


async def test_only_a_mode_that_records_needs_a_store_that_can_be_written(tmp_path: Path) -> None:
    with read_only(tmp_path):
        async with broker_over(FileStore(tmp_path), FakeResponder(), "replay") as broker:
            assert await broker.write_error() is None
            assert await broker.write_error(record=True) is not None
            await broker.set_mode("auto", "other")
            assert await broker.write_error() is not None
            await broker.set_mode("passthrough", "other")
            assert await broker.write_error() is None


class HangingStore(FileStore):
    """Its disk does not answer."""

    async def check_writes(self, name: str | None = None) -> None:
        await asyncio.Event().wait()


async def test_a_disk_that_hangs_does_not_hang_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeway.engine.store_check.PATIENCE_S", 0.01)
    async with broker_over(HangingStore(tmp_path), FakeResponder()) as broker:
        assert await broker.write_error() is None
        monkeypatch.setattr("tapeway.engine.store_check.HANGS_S", 0.0)
        found = await broker.write_error()

    assert isinstance(found, StoreAway)
    assert "takes too long to answer" in found.message


async def test_an_unreachable_tapeway_as_the_store_is_paid_for_never(tmp_path: Path) -> None:
    responder, tries = FakeResponder(), list[int]()

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries[-1] += 1
        writer.close()

    gone = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with gone, far_side(FileStore(tmp_path)) as far:
        store = far.store()
        await store.open()
        async with broker_over(store, responder) as broker:
            assert (await serve(broker, "default", asked("/0"))).outcome == "recorded"
            lead_to(store, f"http://127.0.0.1:{gone.sockets[0].getsockname()[1]}")
            for path in ("/1", "/2"):
                tries.append(0)
                with pytest.raises(StoreAway):
                    await serve(broker, "default", asked(path))
            assert isinstance(await broker.write_error(), StoreAway)
            assert len(responder.asked) == 1
            lead_to(store, far.url)
            assert (await serve(broker, "default", asked("/1"))).outcome == "recorded"

    assert tries[1] == 2, "one for the request and one for the look: none is repeated"


async def test_a_tapeway_that_cannot_write_is_no_store_to_record_into(tmp_path: Path) -> None:
    """Although it replays, and is ready for that itself."""
    responder = FakeResponder()
    async with (
        far_side(FileStore(tmp_path / "far")) as far,
        broker_over(far.store(), responder) as broker,
    ):
        assert (await serve(broker, "default", asked("/0"))).outcome == "recorded"
        with read_only(tmp_path / "far"), pytest.raises(StoreAway, match="far: could not write"):
            await serve(broker, "default", asked("/1"))

    assert len(responder.asked) == 1


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts a connection and never answers."""
    await reader.read()
    writer.close()


@pytest.mark.parametrize("gone", ["refuses", "is silent"])
async def test_a_stop_does_not_wait_for_a_store_that_is_gone(tmp_path: Path, gone: str) -> None:
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1] if gone == "is silent" else 1
    async with far_side(FileStore(tmp_path)) as far, asyncio.TaskGroup() as tasks:
        store = RemoteStore(address_of(far.url))
        await store.open()
        for name in ("x", "y", "z"):
            await store.append(name, HEAD, recording(0))
        lead_to(store, f"http://127.0.0.1:{port}")
        late = tasks.create_task(refused(store))
        await asyncio.sleep(0)
        began = time.monotonic()
        with pytest.raises(StoreAway):
            await store.close()
        took = time.monotonic() - began
        await late
    server.close()

    # One silence alone may last 20 s, and there are three cassettes.
    assert took < 20


async def refused(store: RemoteStore) -> None:
    with pytest.raises(StoreError):
        await store.append("x", HEAD, recording(1))
