"""What every test of the contract is run over, and where its result is noted for the matrix."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tapeway.ports import CassetteStore
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.contract.kinds import KINDS, MODEL, OUTSIDE, Kind, Place
from tests.stores.contract.matrix import FOLDER, annotate
from tests.stores.model_store import ModelPlace, ModelStore
from tests.stores.shared_instances import NewInstance


@pytest.fixture(params=[*KINDS, OUTSIDE, MODEL], ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of store under test."""
    found: Kind = request.param
    return found


@pytest.fixture(params=["postgresql", "model"])
def new_instance(request: pytest.FixtureRequest) -> NewInstance:
    """Makes one more instance of the shared store under test."""
    if request.param == "model":
        place = ModelPlace()
        return lambda: ModelStore(place)
    url: str = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(url)


@pytest.fixture
def server(kind: Kind, request: pytest.FixtureRequest) -> str:
    """What the store under test needs besides itself: the address of a server, mostly nothing."""
    return str(request.getfixturevalue(kind.server)) if kind.server else ""


@pytest.fixture
async def place(kind: Kind, server: str, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty place for cassettes of this kind."""
    async with kind.place(tmp_path, server) as place:
        yield place


@pytest.fixture
async def store(place: Place) -> AsyncIterator[CassetteStore]:
    """An open store over it."""
    async with opened(place.again()) as store:
        yield store


@asynccontextmanager
async def opened(store: CassetteStore) -> AsyncIterator[CassetteStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [item for item in items if item.path.parent == FOLDER]
    annotate(own, [kind.name for kind in [*KINDS, OUTSIDE, MODEL]])
