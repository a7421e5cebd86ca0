"""A folder of cassettes and a store over it; instances of a store that several share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tapeway.ports import SharedStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres_server import fresh
from tests.stores.shared_instances import NewInstance, instances


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cassettes"


@pytest.fixture
async def files(root: Path) -> AsyncIterator[FileStore]:
    store = FileStore(root)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def new_instance(postgres_url: str) -> NewInstance:
    """Makes one more instance of the shared store under test."""
    return lambda: PostgresStore(postgres_url)


@pytest.fixture
async def postgres_url(postgres_dsn: str) -> AsyncIterator[str]:
    """The address of a store of this test's own."""
    async with fresh(postgres_dsn) as url:
        yield url


@pytest.fixture
async def pair(new_instance: NewInstance) -> AsyncIterator[list[SharedStore]]:
    """Two instances of it, opened."""
    async with instances(new_instance) as stores:
        yield stores
