"""How much of a cassette is read before it is decoded."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tapeway.stores.shared.columns import interaction_of
from tapeway.stores.sqlite import queries
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, indexes, recording


async def test_rows_are_taken_several_at_a_time_and_decoded_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def taken(rows: Iterator[tuple[Any, ...]], most: int) -> Iterator[tuple[Any, ...]]:
        for row in islice(rows, most):
            seen.append("taken")
            yield row

    def decoded(text: str, number: int, where: str) -> object:
        seen.append("decoded")
        return interaction_of(text, number, where)

    store = SqliteStore(tmp_path / "x.db")
    await store.open()
    for number in range(5):
        await store.append("x", HEAD, recording(number))
    monkeypatch.setattr(queries, "_ROWS_AT_ONCE", 3)
    monkeypatch.setattr(queries, "islice", taken)
    monkeypatch.setattr(queries, "interaction_of", decoded)
    found = await store.load("x", writable=False)
    await store.close()

    assert indexes(found) == [0, 1, 2, 3, 4]
    assert seen == [*["taken"] * 3, *["decoded"] * 3, *["taken"] * 2, *["decoded"] * 2]
