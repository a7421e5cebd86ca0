"""Histories over every kind of store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tapeway.integrations.history import HistoryStorage, StorageProvider
from tests.stores.contract.kinds import KINDS, Kind, Place


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of store the histories lie in."""
    found: Kind = request.param
    return found


@pytest.fixture
def server(kind: Kind, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(kind.server)) if kind.server else ""


@pytest.fixture
async def place(kind: Kind, server: str, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty place of this kind."""
    async with kind.place(tmp_path, server) as place:
        yield place


@pytest.fixture
async def history(place: Place) -> AsyncIterator[HistoryStorage]:
    """Open histories over it."""
    async with StorageProvider(place.again()) as provider:
        yield provider.history
