"""Large bodies: kept beside a cassette as long as it speaks of them, whatever happens meanwhile."""

import asyncio
import gc
import json
import os
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.body_files import body_pieces
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, StoreError, StoreFull
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.stores.large_bodies import assets, body, contents, large, name
from tests.stores.recordings import HEAD, exchanges, recording
from tests.stores.small_disks import small_disk
from tests.support.fakes.broker import until

KeepingStore = MemoryStore | FileStore


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, root: Path) -> AsyncIterator[KeepingStore]:
    store: KeepingStore = MemoryStore() if request.param == "memory" else FileStore(root)
    await store.open()
    yield store
    await store.close()


async def keep(store: KeepingStore, index: int, *supersedes: int) -> None:
    file = await store.keep("x", [body(index)[:10], body(index)[10:]])
    await store.append("x", HEAD, large(index, file, *supersedes))


async def test_what_was_kept_is_there_before_and_after_its_cassette_s_final_form(
    store: KeepingStore,
) -> None:
    await keep(store, 0)
    await store.append("x", HEAD, recording(1))
    await keep(store, 2)
    expected = [body(0), b'{"answer": 1}', body(2)]

    assert contents(await store.load("x", writable=True)) == expected
    await store.release("x")
    assert contents(await store.load("x", writable=False)) == expected


async def test_a_request_s_body_is_kept_as_well(store: KeepingStore) -> None:
    file = await store.keep("x", [b"asked"])
    made = recording(0)
    asked = replace(made.exchange.request, body=b"", file=file)
    await store.append("x", HEAD, replace(made, interaction=replace(made.exchange, request=asked)))
    await store.release("x")

    (found,) = exchanges(
        (await store.load("x", writable=False) or StoredCassette(HEAD)).interactions
    )
    assert found.request.file == file
    assert b"".join(body_pieces(found.request.file)) == b"asked"


async def test_what_cannot_be_gone_through_leaves_nothing(store: KeepingStore, root: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 1000
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await store.keep("x", broken())

    assert [
        path.name for path in root.rglob("*") if path.name not in (".gitignore", ".x.lock")
    ] in (
        [],
        ["x.assets"],
    )
    await keep(store, 0)
    assert contents(await store.load("x", writable=True)) == [body(0)]


async def test_equal_bodies_share_a_file(files: FileStore, root: Path) -> None:
    for index in range(2):
        await files.append("x", HEAD, large(index, await files.keep("x", [body(7)])))

    assert assets(root) == [name(body(7))]
    assert contents(await files.load("x", writable=True)) == [body(7), body(7)]


async def test_only_its_owner_may_read_it_whatever_the_umask(files: FileStore, root: Path) -> None:
    before = os.umask(0)
    try:
        await keep(files, 0)
    finally:
        os.umask(before)

    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in root.rglob("*")}
    assert modes["x.assets"] == 0o700
    assert modes[name(body(0))] == 0o600


async def test_what_no_recording_refers_to_any_more_goes_with_the_final_form(
    files: FileStore, root: Path
) -> None:
    await keep(files, 0)
    await keep(files, 1)
    await files.release("x")
    await keep(files, 2, 0)
    await files.keep("x", [b"never referred to"])
    assert len(assets(root)) == 4

    await files.release("x")

    assert assets(root) == sorted([name(body(1)), name(body(2))])
    assert contents(await files.load("x", writable=False)) == [body(2), body(1)]


async def test_pruning_the_last_one_removes_the_folder(files: FileStore, root: Path) -> None:
    await keep(files, 0)
    await files.append("x", HEAD, recording(1))
    kept = await files.load("x", writable=True)
    assert kept is not None

    await files.save("x", replace(kept, interactions=kept.interactions[1:]))
    await files.release("x")

    assert sorted(path.name for path in root.iterdir()) == [".gitignore", ".x.lock", "x.json"]


async def test_a_rewrite_spares_what_is_about_to_be_recorded(files: FileStore, root: Path) -> None:
    await files.append("x", HEAD, recording(0))
    file = await files.keep("x", [body(1)])
    kept = await files.load("x", writable=True)
    assert kept is not None

    await files.save("x", kept)
    await files.append("x", HEAD, large(1, file))
    await files.release("x")

    assert contents(await files.load("x", writable=False)) == [b'{"answer": 0}', body(1)]


async def test_texts_of_another_tool_that_are_still_referred_to_stay(
    files: FileStore, root: Path
) -> None:
    theirs = b"long " * 1000
    (root / "x.assets").mkdir(parents=True)
    (root / "x.assets" / name(theirs)).write_bytes(theirs)
    (root / "x.assets" / "notes.txt").write_text("not ours")
    reference = json.dumps({"__agenttape_asset__": name(theirs).replace("-", ":")})
    (root / "x.json").write_text(
        '{"version": "1", "interactions": [{"kind": "tool", "request": {}, "response": {"text": '
        + reference
        + "}}]}"
    )
    await keep(files, 5)
    await files.release("x")

    assert assets(root) == sorted(["notes.txt", name(theirs), name(body(5))])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.unlink(), "is missing, and a recording refers to it"),
        (lambda path: path.write_bytes(b"short"), "has 5 bytes, not the 700 that were recorded"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "has -1 bytes"),
        (lambda path: (path.unlink(), path.mkdir()), "has -1 bytes"),
    ],
)
async def test_a_lost_body_is_named_and_nothing_is_loaded(
    files: FileStore,
    root: Path,
    harm: "object",
    said: str,
) -> None:
    await keep(files, 0)
    await files.release("x")
    harm(root / "x.assets" / name(body(0)))  # type: ignore[operator]

    with pytest.raises(CassetteCorrupt, match=said) as caught:
        await files.load("x", writable=False)

    assert name(body(0)) in caught.value.message


async def test_a_body_that_was_changed_is_never_given_whole(files: FileStore, root: Path) -> None:
    await keep(files, 0)
    await files.release("x")
    path = root / "x.assets" / name(body(0))
    path.write_bytes(body(0)[:-1] + b"!")

    (found,) = exchanges(
        ((await files.load("x", writable=False)) or StoredCassette(HEAD)).interactions
    )
    assert found.response.file is not None
    given: list[bytes] = []
    with pytest.raises(CassetteCorrupt, match="was changed since it was recorded"):
        given.extend(body_pieces(found.response.file))
    assert given == []


async def test_a_folder_that_is_a_link_is_not_followed(
    files: FileStore, root: Path, tmp_path: Path
) -> None:
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (root / "x.assets").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError, match=r"x\.assets"):
        await files.keep("x", [b"body"])

    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_recording_whose_body_is_not_there_is_refused(files: FileStore) -> None:
    await files.append("x", HEAD, recording(0))
    stranger = BodyFile("", 4, "0" * 64)

    with pytest.raises(CassetteCorrupt, match="is missing"):
        await files.append("x", HEAD, large(1, stranger))

    assert contents(await files.load("x", writable=True)) == [b'{"answer": 0}']


async def test_what_was_half_written_at_a_crash_is_removed(files: FileStore, root: Path) -> None:
    (root / "x.assets").mkdir(parents=True)
    (root / "x.assets" / ".0123abcd.tmp").write_bytes(b"half")
    (root / "x.assets" / ".another.tmp").write_bytes(b"not ours")

    await keep(files, 0)

    assert assets(root) == sorted([".another.tmp", name(body(0))])


async def test_a_full_disk_keeps_nothing_of_it_and_takes_the_next(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    with small_disk(root, kib=256):
        store = FileStore(root)
        await store.append("x", HEAD, recording(0))

        with pytest.raises(StoreFull, match="no room to write a large body"):
            await store.keep("x", [b"x" * 65_536] * 8)
        assert assets(root) == []

        await keep(store, 1)
        assert contents(await store.load("x", writable=True)) == [b'{"answer": 0}', body(1)]
        await store.close()


async def test_recordings_go_on_while_a_large_body_is_written(files: FileStore) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow() -> Iterator[bytes]:
        yield b"first"
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        yield b"second"

    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(files.keep("x", slow()))
        await started.wait()
        await files.append("x", HEAD, recording(0))
        assert not keeping.done()
        go_on.set()

    await files.append("x", HEAD, large(1, keeping.result()))
    assert contents(await files.load("x", writable=True)) == [b'{"answer": 0}', b"firstsecond"]


async def test_memory_gives_the_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeway.cooperative.LATER_S", 0.0)

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()  # what earlier tests left open
    before = open_files()
    store = MemoryStore()
    await keep(store, 0)
    assert open_files() == before + 1
    await store.save("x", StoredCassette(HEAD))

    await until(lambda: open_files() == before)
