"""How long commands take to start, beside importing the libraries that tapeway needs.

python -m bench.start
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from operator import truediv

from bench.figures import Table, figure, text

RUNS = 15
_IMPORTS = "import aiohttp, pydantic, orjson, uvloop, click"
_TAPEWAY = "import sys; from tapeway.cli.main import main; sys.exit(main())"


def ends(*arguments: str) -> float:
    """The milliseconds until a program has ended."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - begun) * 1000


def is_ready(*arguments: str) -> float:
    """The milliseconds until a server has printed its ready line."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        return (time.perf_counter() - begun) * 1000
    finally:
        process.terminate()
        process.communicate()


def measure() -> Table:
    """Starts in turn, so that a machine that slows down slows all."""
    with tempfile.TemporaryDirectory() as folder:
        listen = (
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--log-level",
            "error",
        )
        runs: dict[str, tuple[Callable[..., float], Sequence[str]]] = {
            "importing aiohttp, pydantic, orjson, uvloop and click": (ends, ("-c", _IMPORTS)),
            "tapeway --help": (ends, ("-c", _TAPEWAY, "--help")),
            "tapeway env": (ends, ("-c", _TAPEWAY, "env")),
            "tapeway serve, until it is ready": (
                is_ready,
                ("-c", _TAPEWAY, "serve", "--store", folder, *listen),
            ),
        }
        taken: dict[str, list[float]] = {what: [] for what in runs}
        for _ in range(RUNS):
            for what, (run, arguments) in runs.items():
                taken[what].append(run(*arguments))
    imports = next(iter(taken.values()))
    return Table(
        "Starting",
        ("ms", "of the imports"),
        {
            what: [figure(times, 0), figure(list(map(truediv, times, imports)), 2)]
            for what, times in taken.items()
        },
    )


if __name__ == "__main__":
    print(text(measure()))
