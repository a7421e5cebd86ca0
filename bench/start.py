"""How long commands take to start, beside importing the libraries that tapeway needs.

python -m bench.start
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import truediv
from urllib.request import urlopen

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
    with ready(*arguments):
        return (time.perf_counter() - begun) * 1000


def first_admin_call(*arguments: str) -> float:
    """The milliseconds of the first call of its admin API, which imports the API."""
    with ready(*arguments) as admin:
        begun = time.perf_counter()
        with urlopen(f"{admin}/healthz") as response:  # noqa: S310 - our own
            response.read()
        return (time.perf_counter() - begun) * 1000


@contextmanager
def ready(*arguments: str) -> Iterator[str]:
    """The address of the admin API of a server that has printed its ready line."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["admin"]
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
        serve = ("-c", _TAPEWAY, "serve", "--store", folder, *listen)
        runs: dict[str, tuple[Callable[..., float], Sequence[str]]] = {
            "importing aiohttp, pydantic, orjson, uvloop and click": (ends, ("-c", _IMPORTS)),
            "tapeway --help": (ends, ("-c", _TAPEWAY, "--help")),
            "tapeway env": (ends, ("-c", _TAPEWAY, "env")),
            "tapeway serve, until it is ready": (is_ready, serve),
            "its first admin call": (first_admin_call, serve),
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
