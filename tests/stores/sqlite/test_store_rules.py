"""Rules that come into force over a SQLite store bit by bit."""

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from tapeway.core.cassette.recording_keys import index_keys
from tapeway.core.matching import rules
from tapeway.core.matching.rules import Rules
from tapeway.stores.sql import cassettes
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import append_recordings, found_indexes, key, recordings_under

WIDER = Rules(match=("x-kind",))
NEW = replace(HEAD, meta=rules.meta_with_rules(HEAD.meta, WIDER))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassettes, "BATCH", 5)


def wider(number: int) -> bytes:
    """What a recording is found under when the rules are in force."""
    return index_keys(recording(number).exchange, WIDER)[0]


async def test_what_is_recorded_and_edited_meanwhile_is_found_under_them_too(
    store: SqliteStore, file: Path
) -> None:
    await append_recordings(store, *range(60))
    async with asyncio.TaskGroup() as tasks:
        changing = tasks.create_task(store.replace_head("x", NEW))
        number = 100
        while not changing.done():
            await store.append("x", HEAD, recording(number))
            await store.edit("x", number - 50, replace(recording(number + 1000).exchange))
            number += 1

    assert number > 105
    edited = range(50, min(number - 50, 60))
    for position in (*range(50), *range(100, number)):
        if position not in edited:
            assert found_indexes(await recordings_under(store, "x", [wider(position)])) == [
                position
            ]
            assert await recordings_under(store, "x", [key(position)]) == []
    for unedited in edited:
        assert found_indexes(await recordings_under(store, "x", [wider(unedited + 1050)])) == [
            unedited
        ]
    with closing(apsw.Connection(str(file))) as connection:
        assert connection.execute("SELECT count(DISTINCT generation) FROM key").get == 1


async def test_until_all_of_them_are_the_rules_before_are_in_force(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies on the way leaves the cassette as it was."""
    await append_recordings(store, *range(30))
    with monkeypatch.context() as patch:
        patch.setattr(cassettes, "rekey", _dying(cassettes.rekey, 3))
        with pytest.raises(RuntimeError, match="died"):
            await store.replace_head("x", NEW)

    outline = await store.outline("x")
    assert outline is not None
    assert outline.head == HEAD
    assert found_indexes(await recordings_under(store, "x", [key(29), key(0)])) == [0, 29]
    await append_recordings(store, 30)

    await store.replace_head("x", NEW)
    assert found_indexes(await recordings_under(store, "x", [wider(n) for n in (0, 29, 30)])) == [
        0,
        29,
        30,
    ]
    assert await recordings_under(store, "x", [key(0)]) == []


async def test_another_head_with_the_same_rules_costs_nothing(store: SqliteStore) -> None:
    await append_recordings(store, *range(30))
    await store.replace_head("x", replace(HEAD, run_id="another"))

    outline = await store.outline("x")
    assert outline is not None
    assert outline.head.run_id == "another"
    assert found_indexes(await recordings_under(store, "x", [key(7)])) == [7]
    await store.replace_head("y", NEW)
    assert await store.names() == ["x"]


def _dying(step: object, after: int) -> object:
    left = iter(range(after))

    def dying(*arguments: object, **named: object) -> object:
        if next(left, None) is None:
            raise RuntimeError("died")
        assert callable(step)
        return step(*arguments, **named)

    return dying
