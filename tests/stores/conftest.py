"""A folder of cassettes and a store over it; instances of a store that several share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tapeway.ports import SharedStore
from tapeway.stores.file import FileStore
from tests.stores.shared import NewInstance, instances


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cassettes"


@pytest.fixture
async def files(root: Path) -> AsyncIterator[FileStore]:
    store = FileStore(root)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=["sqlite"])
def new_instance(request: pytest.FixtureRequest, tmp_path: Path) -> NewInstance:
    """Makes one more instance of the shared store under test."""
    sqlite = pytest.importorskip("tapeway.stores.sqlite")
    return lambda: sqlite.SqliteStore(tmp_path / "cassettes.db")


@pytest.fixture
async def pair(new_instance: NewInstance) -> AsyncIterator[list[SharedStore]]:
    """Two instances of it, opened."""
    async with instances(new_instance) as stores:
        yield stores
