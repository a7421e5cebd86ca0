"""Listing cassettes, reading them whole, and what a cassette says of itself."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from tapeway.admin.handlers import cassettes as cassettes_handlers
from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteCorrupt
from tapeway.formats.native import document
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.admin.admin_and_proxy import World, world
from tests.admin.handlers.test_import_export import SECRET, said
from tests.support.memory import living

ONE = "/api/v1/cassettes/one"
HEAD = {"created_at": "then", "run_id": "a-run", "meta": {"who": "me"}}


async def test_a_list_says_names_sizes_interactions_and_times(open_world: World) -> None:
    await open_world.ask("/v1/a", cassette="one")
    await open_world.ask("/v1/b", cassette="one")
    await open_world.ask(cassette="runs/two")
    await open_world.done("POST", "/api/v1/eject", {"cassette": "one"})
    await open_world.done("POST", "/api/v1/insert", {"cassette": "new", "mode": "replay"})

    listed = await open_world.got("/api/v1/cassettes")

    stats = {name: await open_world.broker.store.stat(name) for name in ("one", "runs/two")}
    one, two = stats["one"], stats["runs/two"]
    assert one is not None
    assert two is not None
    common = {"active": False, "mode": "replay", "error": None, "mark": None}
    assert listed == {
        "cassettes": [
            {
                **common,
                "name": "new",
                "active": True,
                "loaded": True,
                "interactions": 0,
                "size_bytes": None,
                "modified_at": None,
            },
            {
                **common,
                "name": "one",
                "loaded": False,
                "interactions": 2,
                "size_bytes": one.size_bytes,
                "modified_at": one.modified_at,
                "mark": one.version,
            },
            {
                **common,
                "name": "runs/two",
                "loaded": True,
                "interactions": 1,
                "size_bytes": two.size_bytes,
                "modified_at": two.modified_at,
                "mark": two.version,
            },
        ],
        "next": None,
    }


async def test_pages_hold_each_cassette_once(open_world: World) -> None:
    names = sorted(f"run-{number}" for number in range(7))
    for name in names:
        await open_world.ask(cassette=name)

    seen: list[str] = []
    path = "/api/v1/cassettes?limit=3"
    pages = 0
    while True:
        page = await open_world.got(path)
        pages += 1
        seen += [listed["name"] for listed in page["cassettes"]]
        if page["next"] is None:
            break
        path = f"/api/v1/cassettes?limit=3&after={page['next']}"

    assert (seen, pages) == (names, 3)
    exact = await open_world.got("/api/v1/cassettes?limit=7")
    assert (len(exact["cassettes"]), exact["next"]) == (7, None)


async def test_a_page_may_begin_after_a_name_that_is_gone(open_world: World) -> None:
    for name in ("a", "c"):
        await open_world.ask(cassette=name)

    page = await open_world.got("/api/v1/cassettes?after=b")

    assert [listed["name"] for listed in page["cassettes"]] == ["c"]


class CountingStore(MemoryStore):
    """Counts what is read, and has cassettes that cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: Counter[str] = Counter()
        self.damaged = ""

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        self.loads[name] += 1
        if name == self.damaged:
            raise CassetteCorrupt(f"{name}.json line 3: it ends in the middle")
        return await super().load(name, writable=writable)


async def test_a_count_is_read_once_and_again_after_a_change() -> None:
    store = CountingStore()
    async with world(store=store) as found:
        await found.ask(cassette="one")
        await found.done("POST", "/api/v1/eject", {"cassette": "one"})
        store.loads.clear()
        for _ in range(3):
            (item,) = (await found.got("/api/v1/cassettes"))["cassettes"]
            assert item["interactions"] == 1
        assert store.loads["one"] == 1

        await found.ask("/v1/more", cassette="one")
        await found.done("POST", "/api/v1/eject", {"cassette": "one"})
        store.loads.clear()
        (item,) = (await found.got("/api/v1/cassettes"))["cassettes"]

    assert (item["interactions"], store.loads["one"]) == (2, 1)


async def test_counting_keeps_to_its_budget(
    open_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await open_world.ask(cassette=name)
        await open_world.done("POST", "/api/v1/eject", {"cassette": name})
    size = (await open_world.got("/api/v1/cassettes?limit=1"))["cassettes"][0]["size_bytes"]
    monkeypatch.setattr(cassettes_handlers, "MAX_COUNTED_BYTES", size)

    counts = [
        [
            listed["interactions"]
            for listed in (await open_world.got("/api/v1/cassettes"))["cassettes"]
        ]
        for _ in range(2)
    ]

    assert counts == [[1, 1, None], [1, 1, 1]]


async def test_one_damaged_cassette_does_not_hide_the_others() -> None:
    store = CountingStore()
    async with world(store=store) as found:
        for name in ("a", "b"):
            await found.ask(cassette=name)
            await found.done("POST", "/api/v1/eject", {"cassette": name})
        store.damaged = "a"
        first, second = (await found.got("/api/v1/cassettes"))["cassettes"]
        export = await found.call("GET", "/api/v1/cassettes/a")

    assert (first["interactions"], first["error"]) == (None, "a.json line 3: it ends in the middle")
    assert (second["interactions"], second["error"]) == (1, None)
    assert export.status == 500
    assert (await export.json())["error"]["code"] == "cassette_corrupt"


@pytest.mark.parametrize("loaded", [True, False])
async def test_an_export_is_the_file_of_the_cassette(open_world: World, loaded: bool) -> None:
    for path in ("/v1/a", "/v1/b"):
        await open_world.ask(path, cassette="runs/one")
    if not loaded:
        await open_world.done("POST", "/api/v1/eject", {"cassette": "runs/one"})

    export = "/api/v1/cassettes/runs%2Fone"
    response = await open_world.call("GET", export)

    stored = await open_world.broker.store.load("runs/one", writable=False)
    assert stored is not None
    assert response.content_type == "application/json"
    assert await open_world.octets(export + "?format=json") == document.save(stored)
    assert [interaction["index"] for interaction in (await response.json())["interactions"]] == [
        0,
        1,
    ]


async def test_reading_has_no_effect() -> None:
    store = MemoryStore()
    async with world(store=store) as found:
        await found.ask(cassette="one")
        await found.done("POST", "/api/v1/eject", {"cassette": "one"})
        before, takes = await store.stat("one"), found.broker.takes

        for path in ("", "/one", "/one/interactions", "/one/interactions/0"):
            await found.got(f"/api/v1/cassettes{path}")

        assert await found.broker.source.counts() == []
        assert found.broker.takes == takes
        assert await store.stat("one") == before


@pytest.mark.parametrize(
    "path", ["", "/interactions", "/interactions/0", "?format=json", "/interactions?limit=1"]
)
async def test_a_cassette_that_is_not_there_is_a_404(open_world: World, path: str) -> None:
    before = living(asyncio.Lock)

    response = await open_world.call("GET", f"/api/v1/cassettes/none{path}")

    assert response.status == 404
    assert (await response.json())["error"]["code"] == "no_cassette"
    assert living(asyncio.Lock) <= before, "a name that is nobody's costs no memory"


@pytest.mark.parametrize(
    "name",
    ["%2e%2e", "a%2F..%2Fb", "%2Fetc", "a%252Fb", "a%00", ".hidden", "a%20b", "%ff", "a" * 129],
)
async def test_a_name_that_is_none_is_a_400(open_world: World, name: str) -> None:
    for path in ("", "/interactions", "/interactions/0"):
        answer = await open_world.raw(
            f"GET /api/v1/cassettes/{name}{path} HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: close\r\n\r\n".encode()
        )

        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 "), answer
        assert json.loads(body)["error"]["code"] == "bad_cassette_name"


async def test_of_a_folder_an_export_is_the_very_file_and_reading_leaves_it_alone(
    tmp_path: Path,
) -> None:
    async with world(store=FileStore(tmp_path)) as found:
        for path in ("/v1/a", "/v1/b"):
            await found.ask(path, cassette="runs/one")
        while_in = await found.octets("/api/v1/cassettes/runs%2Fone")
        await found.done("POST", "/api/v1/eject", {"cassette": "runs/one"})
        before = _files(tmp_path)

        (item,) = (await found.got("/api/v1/cassettes"))["cassettes"]
        ejected = await found.octets("/api/v1/cassettes/runs%2Fone")
        await found.got("/api/v1/cassettes/runs%2Fone/interactions/1")

        assert _files(tmp_path) == before
    written = (tmp_path / "runs" / "one.json").read_bytes()
    assert while_in == ejected == written
    assert (item["name"], item["interactions"], item["size_bytes"]) == (
        "runs/one",
        2,
        len(written),
    )


def _files(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}


@pytest.mark.parametrize("route", ["", "/messages"])
async def test_a_cassette_that_would_not_fit_into_memory_is_not_read_whole(
    route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(store=SqliteStore(tmp_path / "calls.db")) as found:
        await found.ask("/v1/x")
        path = "/api/v1/cassettes/default"
        assert (await found.call("GET", path + route)).status == 200

        monkeypatch.setattr(cassettes_handlers, "MAX_WHOLE_BYTES", 100)
        # What was read of the cassette before is known until it changes.
        await found.ask("/v1/y")
        response = await found.call("GET", path + route)
        assert response.status == 413
        assert "/copy" in await response.text()
        for bit_by_bit in ("/copy", "/interactions"):
            assert (await found.call("GET", path + bit_by_bit)).status == 200


@pytest.mark.parametrize("meta", [{"rules": {"nonsense": 1}}, {"rules": []}, {"repeats": "always"}])
async def test_a_head_that_no_store_could_read_is_refused(
    store: CassetteStore, meta: dict[str, object]
) -> None:
    async with world(store=store) as found:
        sent = {"interactions": [said("b")], "head": {**HEAD, "meta": meta}}

        response = await found.call("POST", "/api/v1/cassettes/new/interactions", sent)

        assert (response.status, (await response.json())["error"]["code"]) == (422, "bad_cassette")
        assert (await found.call("GET", "/api/v1/cassettes/new")).status == 404


async def test_a_head_that_shows_a_secret_is_refused_or_redacted(store: CassetteStore) -> None:
    async with world(store=store) as found:
        new = "/api/v1/cassettes/new"
        sent = {"interactions": [said("b")], "head": {**HEAD, "meta": {"note": SECRET}}}

        response = await found.call("POST", f"{new}/interactions", sent)

        assert (response.status, (await response.json())["error"]["code"]) == (422, "shows_secrets")
        assert SECRET not in await response.text()
        assert (await found.call("GET", new)).status == 404
        await found.done("POST", f"{new}/interactions?secrets=redact", sent)
        stored = await found.got(new)
        assert set(stored["meta"]) == {"note"}
        assert SECRET not in str(stored)


async def test_looking_for_one_cassette_lists_no_others(
    store: CassetteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden() -> list[str]:
        raise AssertionError("all cassettes were listed")

    async with world(store=store) as found:
        await found.ask(cassette="one")
        await found.ask(cassette="two")
        monkeypatch.setattr(store, "names", forbidden)

        one = await found.got("/api/v1/cassettes?name=one")
        none = await found.got("/api/v1/cassettes?name=three")

        assert [listed["name"] for listed in one["cassettes"]] == ["one"]
        assert one["cassettes"][0]["loaded"]
        assert none == {"cassettes": [], "next": None}
        monkeypatch.undo()


async def test_a_loaded_cassette_without_recordings_is_read_as_empty(
    store: CassetteStore,
) -> None:
    async with world(store=store) as opened:
        await opened.done("POST", "/api/v1/insert", {"cassette": "new", "mode": "replay"})

        for part, listed in (
            ("", "interactions"),
            ("/interactions", "interactions"),
            ("/titles", "titles"),
            ("/messages", "messages"),
            ("/comparison?other=new", "rows"),
        ):
            assert (await opened.got(f"/api/v1/cassettes/new{part}"))[listed] == [], part


async def test_a_report_has_its_cassettes_by_name(store: CassetteStore) -> None:
    async with world(store=store) as opened:
        for name in ("two", "one"):
            await opened.got(f"/api/v1/cassettes?name={name}")
            await opened.ask(cassette=name)
        await opened.done("POST", "/api/v1/insert", {"cassette": "a", "mode": "replay"})

        report = await opened.got("/api/v1/report")

        names = [each["name"] for each in report["cassettes"]]
        assert [name for name in names if name != "default"] == ["a", "one", "two"]
