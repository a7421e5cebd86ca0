"""Alive, ready, and the state of things, as scripts read it."""

from contextlib import suppress
from pathlib import Path

import pytest

from tapeway.errors import StoreError, StoreFull, poisoned
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.admin.admin_and_proxy import World, world
from tests.stores.remote.far_side import far_side, lead_to
from tests.stores.small_disks import small_disk

NOBODY = "http://127.0.0.1:1"


async def test_it_is_alive_and_ready(open_world: World) -> None:
    assert await open_world.got("/healthz") == {"status": "ok"}
    assert await open_world.got("/readyz") == {"status": "ready"}


async def test_it_is_not_ready_while_it_drains(open_world: World) -> None:
    open_world.broker.drain()

    ready = await open_world.call("GET", "/readyz")

    assert ready.status == 503
    assert (await ready.json())["error"]["code"] == "draining"
    assert (await open_world.call("GET", "/healthz")).status == 200


class PoisonedStore(MemoryStore):
    """Says that a sync failed, or that it cannot be written."""

    poisoned = False
    unwritable: StoreError | None = None

    @property
    def trouble(self) -> StoreError | None:
        return poisoned(self.url) if self.poisoned else None

    async def check_writes(self, name: str | None = None) -> None:
        if self.unwritable is not None:
            raise self.unwritable


async def test_it_is_not_ready_while_the_store_is_poisoned() -> None:
    store = PoisonedStore()
    async with world(store=store) as found:
        before = await found.call("GET", "/readyz")
        store.poisoned = True
        refused = await found.call("GET", "/readyz")
        store.poisoned = False
        after = await found.call("GET", "/readyz")

    assert [answer.status for answer in (before, refused, after)] == [200, 503, 200]
    assert (await refused.json())["error"]["code"] == "store_poisoned"


async def test_it_is_not_ready_while_it_records_and_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tapeway.engine.store_check.FRESH_S", -1.0)
    store = PoisonedStore()
    store.unwritable = StoreFull("/cassettes: no room to write a recording")
    async with world(store=store) as found:
        unready = await found.call("GET", "/readyz")
        in_metrics = await (await found.call("GET", "/metrics")).text()
        await found.done("PUT", "/api/v1/mode", {"mode": "replay"})
        replaying = await found.call("GET", "/readyz")
        to_record = await found.call("GET", "/readyz?record=true")
        await found.done("PUT", "/api/v1/mode", {"mode": "record"})
        store.unwritable = None
        after = await found.call("GET", "/readyz")

    assert [answer.status for answer in (unready, replaying, to_record, after)] == [
        503,
        200,
        503,
        200,
    ]
    error = (await unready.json())["error"]
    assert error["code"] == "store_unwritable"
    assert error["message"] == "/cassettes: no room to write a recording"
    assert "tapeway_ready 0.0" in in_metrics


async def test_it_is_not_ready_from_the_first_request_that_the_store_fails(tmp_path: Path) -> None:
    async with far_side(FileStore(tmp_path)) as far:
        store = far.store()
        async with world(store=store, mode="replay") as found:
            assert (await found.ask(cassette="before")).status == 400
            lead_to(store, NOBODY)
            unnoticed = await found.call("GET", "/readyz")
            failed = await found.ask(cassette="away")
            unready = await found.call("GET", "/readyz")
            in_metrics = await (await found.call("GET", "/metrics")).text()
            lead_to(store, far.url)
            served = await found.ask(cassette="away")
            ready = await found.call("GET", "/readyz")

    assert (unnoticed.status, failed.status, unready.status) == (200, 503, 503)
    assert (await unready.json())["error"]["code"] == "store_unreachable"
    assert "tapeway_ready 0.0" in in_metrics
    assert (served.status, ready.status) == (400, 200)


async def test_it_is_ready_again_without_a_request_where_the_store_is_back(tmp_path: Path) -> None:
    """Nobody sends requests to what is not ready."""
    async with far_side(FileStore(tmp_path)) as far:
        store = far.store()
        async with world(store=store, mode="replay") as found:
            lead_to(store, NOBODY)
            await found.ask(cassette="away")
            unready = await found.call("GET", "/readyz")
            lead_to(store, far.url)
            ready = await found.call("GET", "/readyz")

    assert (unready.status, ready.status) == (503, 200)


async def test_a_cassette_that_cannot_be_read_leaves_it_ready(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    async with world(store=FileStore(tmp_path), mode="replay") as found:
        failed = await found.ask(cassette="broken")
        ready = await found.call("GET", "/readyz")

    assert (failed.status, ready.status) == (500, 200)


async def test_a_full_disk_shows_with_the_first_recording_that_fails(tmp_path: Path) -> None:
    with small_disk(tmp_path, 1024):
        async with world(store=FileStore(tmp_path)) as found:
            before = await found.call("GET", "/readyz")
            filler = tmp_path / "filler"
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            found.service.body = bytes(64 * 1024)
            failed = await found.ask("/large")
            unready = await found.call("GET", "/readyz")
            filler.unlink()
            served = await found.ask("/large")
            ready = await found.call("GET", "/readyz")

    assert (before.status, failed.status, unready.status) == (200, 507, 503)
    assert (served.status, ready.status) == (200, 200)


async def test_a_fresh_status_says_all_there_is(open_world: World) -> None:
    assert await open_world.got("/api/v1/status") == {
        "version": "1.2.3",
        "mode": "auto",
        "cassette": "default",
        "store": {"url": "memory:", "durability": "process"},
        "takes": 1,
        "upstream_connections": 0,
        "open_connections": {"in_use": 0, "idle": 0},
        "in_flight": 0,
        "counts": {"replayed": 0, "recorded": 0, "live": 0, "miss": 0, "error": 0},
        "cassettes": [],
        "own_modes": [],
    }


async def test_it_counts_what_became_of_requests(open_world: World) -> None:
    for _ in range(3):
        await open_world.ask("/v1/a")
    await open_world.ask("/v1/b")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/a")
    await open_world.ask("/v1/c")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "passthrough", "cassette": "other"})
    await open_world.ask("/v1/a", cassette="other")
    await open_world.ask("/v1/a", cassette="..")

    status = await open_world.got("/api/v1/status")

    assert status["counts"] == {"replayed": 1, "recorded": 4, "live": 1, "miss": 1, "error": 1}
    assert status["upstream_connections"] == open_world.service.connections == 5
    assert (status["mode"], status["takes"]) == ("replay", 3)
    assert status["cassettes"] == [
        {"name": "default", "mode": "replay", "interactions": 4, "unused": 3},
        {"name": "other", "mode": "passthrough", "interactions": 0, "unused": 0},
    ]
