"""The first call of the admin API, which imports and makes the API."""

import time
from pathlib import Path

import pytest

from tests.process.serving import COMMAND, Tapeway

MOST_S = 0.3


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/clients"])
async def test_the_first_admin_call_costs_little_processor_time(tmp_path: Path, path: str) -> None:
    async with Tapeway(tmp_path, command=COMMAND) as tapeway:
        # The clock of another process's processor time: clock_getcpuclockid(3).
        clock = ~tapeway.ready["pid"] << 3 | 2
        before = time.clock_gettime(clock)
        status, _ = await tapeway.admin("GET", path)
        used = time.clock_gettime(clock) - before

    assert status == 200
    assert used <= MOST_S
