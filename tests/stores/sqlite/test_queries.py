"""How much of a cassette is read before it is decoded."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.model.cassette import TakenRecording
from tapeway.stores.sql import queries, rows
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, indexes, recording
from tests.stores.shared_instances import append_recordings, key, recordings_under
from tests.stores.sqlite.inside import on_readers


async def test_rows_are_taken_several_at_a_time_and_decoded_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = rows.recordings_of

    def counted(found: Sequence[Any], *args: Any, **named: Any) -> list[TakenRecording]:
        decoded.append(len(found))
        return decode(found, *args, **named)

    store = SqliteStore(tmp_path / "x.db")
    await store.open()
    for number in range(5):
        await store.append("x", HEAD, recording(number))
    monkeypatch.setattr(queries, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(rows, "recordings_of", counted)
    found = await store.load("x", writable=False)
    await store.close()

    assert indexes(found) == [0, 1, 2, 3, 4]
    assert decoded == [3, 2]


async def test_a_look_up_reads_as_much_however_many_recordings_there_are(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db")
    await store.open()
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    await append_recordings(store, *range(10))
    await store.duplicates("x", 9)
    await on_readers(store, lambda it: it.set_progress_handler(count, 1))
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: recordings_under(store, "x", [key(3), key(7)]),
        lambda: store.get("x", 3),
        lambda: store.look("x", 1, [key(3)], [key(3)]),
        lambda: store.page("x", after=3, limit=2),
        lambda: store.near("x", "GET", "/nowhere", 2),
        lambda: store.outline("x"),
        lambda: store.stat("x"),
        lambda: store.unused("x", [1], 2),
    ]
    few, many = list[int](), list[int]()
    for number, call in [*enumerate(calls), *enumerate(calls)]:
        if len(few) == len(calls) and number == 0:
            await append_recordings(store, *range(10, 300))
        steps = 0
        await call()
        (few if len(few) < len(calls) else many).append(steps)
    await store.close()

    assert [after <= 2 * before for before, after in zip(few, many, strict=True)] == [True] * 8
