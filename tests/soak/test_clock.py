"""The clock of the process over SQLite in the soak: it jumps for what Python shows, and for nothing else."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from soak.clusters import PythonClock
from soak.schedule import FAULTS

_SHOW = """
import json, time
from datetime import UTC, datetime
print(json.dumps([time.time(), time.time_ns() / 1e9, datetime.now(UTC).timestamp(), time.monotonic()]))
"""


@pytest.mark.parametrize(("offset", "seconds"), [("+3h", 10_800), ("-2d", -172_800), ("+0h", 0)])
def test_the_wall_clock_jumps_and_the_monotonic_one_goes_on(
    offset: str, seconds: int, tmp_path: Path
) -> None:
    clock = PythonClock(tmp_path / "clock")
    clock.jump(offset)

    said = subprocess.check_output(
        [sys.executable, "-c", _SHOW], env={**os.environ, **clock.environ}
    )

    *shown, monotonic = json.loads(said)
    assert shown == pytest.approx([datetime.now(UTC).timestamp() + seconds] * 3, abs=600)
    assert monotonic == pytest.approx(time.monotonic(), abs=600)


def test_the_clock_jumps_on_every_kind_of_store() -> None:
    assert all("clock" in faults for faults in FAULTS.values())
