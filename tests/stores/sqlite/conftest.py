"""A file for a SQLite store, and a store over it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tapeway.stores.sqlite.store import SqliteStore


@asynccontextmanager
async def opened(file: Path) -> AsyncIterator[SqliteStore]:
    """A store over a file."""
    store = SqliteStore(file)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    async with opened(file) as store:
        yield store
