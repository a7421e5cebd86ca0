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
async def place(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty place of this kind."""
    async with kind.of_test(request, tmp_path) as place:
        yield place


@pytest.fixture
async def history(place: Place) -> AsyncIterator[HistoryStorage]:
    """Open histories over it."""
    async with StorageProvider(place.again()) as provider:
        yield provider.history
