"""A cassette's documents, read and changed while nobody records."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.core.model.cassette import CassetteHead
from tapeway.errors import CassetteCorrupt, CassetteLocked, RequestError, StoreError
from tapeway.formats.fields import Document
from tapeway.stores.file import offline
from tapeway.stores.file.offline import OfflineCassette
from tapeway.stores.file.store import FileStore
from tests.stores.recordings import HEAD, answers, bodies, exchanges, facts, record, recording

Change = Callable[[OfflineCassette], tuple[CassetteHead, list[Document]] | None]


def rewrite(root: Path, name: str, change: Change) -> None:
    with offline.claimed(root, name) as claim:
        if (changed := change(claim.cassette)) is not None:
            claim.replace(*changed)


def second_answer(text: str) -> Change:
    def change(found: OfflineCassette) -> tuple[CassetteHead, list[Document]]:
        documents = [page.document for page in found.interactions]
        documents[1] = documents[1] | {"response": {"status_code": 200, "text": text}}
        return replace(found.head, meta={"changed": True}), documents

    return change


async def test_a_cassette_and_its_journal_are_read_as_one(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    await record(store, 0, name="a/x")
    await store.append("a/x", HEAD, recording(1))

    found = offline.read(tmp_path, "a/x")

    assert [
        exchange.response.body for exchange in exchanges([page.item for page in found.interactions])
    ] == (answers(0, 1))
    assert [page.document["kind"] for page in found.interactions] == ["http", "http"]
    assert found.head == HEAD
    await store.close()


async def test_a_change_takes_the_place_of_file_and_journal(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    await record(store, 0, 1)
    await store.close()
    before = (tmp_path / "x.json").read_bytes()

    rewrite(tmp_path, "x", second_answer("changed"))

    after = (tmp_path / "x.json").read_bytes()
    assert bodies(await FileStore(tmp_path).load("x", writable=False)) == [
        *answers(0),
        b"changed",
    ]
    assert b'"changed": true' in after
    # What was not changed stands there as before.
    first = before[before.index(b'"index": 0') : before.index(b'"index": 1')]
    assert first in after
    assert sorted(file.name for file in tmp_path.iterdir()) == [".gitignore", ".x.lock", "x.json"]


async def test_nothing_is_touched_where_nothing_changes(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    await record(store, 0)
    await store.close()
    before = facts(tmp_path / "x.json")

    rewrite(tmp_path, "x", lambda found: None)

    assert facts(tmp_path / "x.json") == before


async def test_a_cassette_that_is_recorded_into_is_read_and_not_changed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    await store.append("x", HEAD, recording(0))

    with pytest.raises(CassetteLocked, match="records into this cassette"):
        rewrite(tmp_path, "x", lambda found: (found.head, []))
    assert len([*offline.read(tmp_path, "x").interactions]) == 1
    await store.close()
    assert bodies(await FileStore(tmp_path).load("x", writable=False)) == answers(0)


def test_what_cannot_be_read_is_named_and_left(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"interactions": 1}')

    for work in (offline.read, lambda root, name: rewrite(root, name, lambda found: None)):
        with pytest.raises(StoreError, match=r"x\.json: there is no such cassette"):
            work(tmp_path, "x")
        with pytest.raises(StoreError, match=r"x\.json: there is no such cassette"):
            work(tmp_path / "nowhere", "x")
        with pytest.raises(CassetteCorrupt, match=r"broken\.json line 1"):
            work(tmp_path, "broken")
        with pytest.raises(RequestError):
            work(tmp_path, "../x")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broken.json"]
