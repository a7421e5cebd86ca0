"""How much of a cassette is read before it is decoded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.model.cassette import TakenRecording
from tapeway.stores.sql import queries, rows
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, indexes, recording


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
