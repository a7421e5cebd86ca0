"""A file for a SQLite store, and a store over it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tapeway.stores.sqlite.store import SqliteStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(file)
    await store.open()
    yield store
    await store.close()
