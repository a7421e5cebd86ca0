"""Measure everything, print it, and write docs/performance.md and its chart.

python -m bench

Every table is measured in one interleaved run beside bare servers: compare within a row only. It
takes about ten minutes.
"""

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    bodies,
    instructions,
    loading,
    million,
    page,
    recording,
    replay,
    rivals,
    start,
    stores,
    waits,
    websocket,
)
from bench.figures import Table, chart, markdown, text

ROOT = Path(__file__).parents[1]
PAGE, CHART = ROOT / "docs/performance.md", ROOT / "docs/performance.svg"
BEGIN, END = (
    "<!-- measured: `make bench` writes this part -->\n",
    "<!-- end of what was measured -->\n",
)


def tables() -> list[Table]:
    """What can be measured on this machine, printed as it is found."""
    measures: list[Callable[[], Table]] = [
        replay.measure,
        waits.measure,
        recording.measure,
        websocket.measure,
        stores.measure,
        bodies.measure,
        loading.measure,
        million.measure,
        start.measure,
    ]
    if instructions.available():
        measures.append(instructions.measure)
    if page.available():
        measures.append(page.measure)
    if rivals.installed():
        measures.append(rivals.measure)
    measured = []
    for measure in measures:
        measured.append(measure())
        print(text(measured[-1]), flush=True)
    return measured


def machine() -> str:
    """What the figures were measured on."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    processor = models[0] if models else platform.machine()
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} with {os.cpu_count()} processors ({processor}), "
        f"Python {platform.python_version()}. A figure is the median, and in brackets the middle half. "
        "Compare within a row only: each row was measured in turns, in one run.\n"
    )


def write(results: list[Table]) -> None:
    """Put the tables in the place of those of the page, and draw the first one."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    measured = "\n".join([machine(), *map(markdown, results)])
    drawn = chart(results[0], (*replay.BASELINES, replay.OURS))
    PAGE.write_text(f"{before}{BEGIN}\n{measured}\n{END}{after}")
    CHART.write_text(drawn)
    print(f"wrote {PAGE.relative_to(ROOT)} and {CHART.relative_to(ROOT)}")


if __name__ == "__main__":
    write(tables())
