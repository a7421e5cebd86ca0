"""Looks for inputs that break a promise, for a while.

python -m tests.fuzz [TARGET ...]

`MINUTES` (1) is the time for each target. Atheris guides the search by coverage where it is
installed; otherwise inputs are varied at random. What was interesting is kept in `.fuzz/TARGET`, where
the next run goes on. An input that breaks a promise is written to `.fuzz/TARGET.found` and ends the
run with 1: mend the fault, and move the input to `tests/fuzz/found/TARGET/`.
"""

import importlib
import importlib.util
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEPT = Path(".fuzz")


def guided(name: str, seconds: float) -> None:
    """Search by coverage. Ends the process."""
    atheris: Any = importlib.import_module("atheris")
    sys.stdout.write(f"{name}: guided by coverage\n")

    with atheris.instrument_imports(include=["tapeway"]):
        from tests.fuzz.seeds import seeds
        from tests.fuzz.targets import TARGETS

    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (folder / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds:g}", f"-artifact_prefix={KEPT / name}.", "-timeout=20"]
    atheris.Setup(
        [sys.argv[0], str(folder), *options], lambda data: _kept(name, TARGETS[name], data)
    )
    atheris.Fuzz()


def _kept(name: str, target: Callable[[bytes], object], data: bytes) -> None:
    """Try an input; one that breaks a promise is written down."""
    try:
        target(data)
    except BaseException:
        KEPT.mkdir(exist_ok=True)
        (KEPT / f"{name}.found").write_bytes(data)
        raise


def varied(name: str, seconds: float) -> None:
    """Search at random, from a seed that is printed."""
    from tests.fuzz.seeds import mutated, seeds
    from tests.fuzz.targets import TARGETS

    chance = random.Random(seed := random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"{name}: random seed {seed}\n")
    until = time.monotonic() + seconds
    for data in mutated(seeds(name), chance):
        _kept(name, TARGETS[name], data)
        if time.monotonic() > until:
            return


if __name__ == "__main__":
    lasts = 60 * float(os.environ.get("MINUTES") or 1)
    match sys.argv[1:]:
        case ["--only", target]:
            (guided if importlib.util.find_spec("atheris") else varied)(target, lasts)
        case names:
            from tests.fuzz.targets import TARGETS

            # Each in a process of its own: the guided search ends it.
            command = [sys.executable, "-m", "tests.fuzz", "--only"]
            failed = [each for each in names or TARGETS if subprocess.call([*command, each])]
            sys.exit(f"found by {', '.join(failed)}" if failed else 0)
