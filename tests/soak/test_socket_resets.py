"""WebSocket connections that break lose nothing and leave nothing, on every kind of store."""

from pathlib import Path
from random import Random

import pytest

from soak.socket_resets import DELIVERIES, broken
from tapeway.core.model.control import Delivery
from tests.stores.contract.kinds import KINDS, Kind
from tests.support.thoroughness import runs_everything

CONNECTIONS = 5000 if runs_everything() else 100


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name in ("memory", "file", "sqlite")], ids=str
)
async def test_connections_that_break_lose_nothing_and_leave_nothing(
    tmp_path: Path, kind: Kind, delivery: Delivery
) -> None:
    async with kind.place(tmp_path, "") as place:
        outcome = await broken(place.again(), delivery, Random(delivery), CONNECTIONS)

    assert outcome.wrong == []
    assert outcome.answered
    assert outcome.notified
