"""Stores of each sort that answers requests in a way of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.stores.contract.kinds import KINDS, Place

_NAMES = ("memory", "file", "sqlite", "postgresql", "remote")
_STORES = [kind for kind in KINDS if kind.name in _NAMES]
assert len(_STORES) == len(_NAMES)


@pytest.fixture(params=_STORES, ids=str)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty place for cassettes."""
    async with request.param.of_test(request, tmp_path) as place:
        yield place
