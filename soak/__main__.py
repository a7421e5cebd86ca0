"""Attacks instances and a process over SQLite for a while, and checks what clients saw.

python -m soak [postgres|sqlite ...] [--seed N] [--check FILE]

`MINUTES` (3) is how long, shared by the stores. A line for each round tells its fault. Where a rule
was broken the run ends with 1; its history is in `.soak/`, and `--check` reads it again. The same
seed gives the same operations and faults in the same order.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from soak.checker import violations
from soak.clusters import limited_disk
from soak.history import KINDS, History, Kind, load
from soak.running import attacked
from soak.schedule import Round, rounds
from tests.stores.postgres_server import find_binaries, started
from tests.support import fork_server

KEPT = Path(".soak")
_SHOWN = 40


def attack(kind: Kind, seed: int, seconds: float) -> int:
    """Attack one store; how many violations there were."""
    say(f"{kind}: seed {seed}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapeway-soak-")))
        server = None
        own = folder / "tapeway"
        own.mkdir()
        small = folder / "database" if kind == "postgres" else own / "disk"
        disk = stack.enter_context(limited_disk(small, kind))
        if kind == "postgres":
            if (binaries := find_binaries()) is None:
                say("postgres: left out, there is no PostgreSQL on this machine")
                return 0
            small.parent.chmod(0o755)
            server = stack.enter_context(started(small, binaries))
        left_out: dict[str, str] = {}
        history = asyncio.run(
            attacked(
                *(kind, seed, _until(rounds(seed, kind), seconds), own),
                server=server,
                jumping=True,
                disk=disk,
                left_out=left_out,
            )
        )
    for fault, reason in left_out.items():
        say(f"{kind}: left out {fault}: {reason}")
    return tell(history, KEPT / f"{kind}-{seed}.jsonl")


def _until(all_rounds: Iterator[Round], seconds: float) -> Iterator[Round]:
    until = time.monotonic() + seconds
    for one_round in all_rounds:
        if time.monotonic() > until:
            return
        fault = one_round.fault
        say(f"  round {one_round.number}: {fault.kind} for {fault.lasts_s:.1f} s")
        yield one_round


def tell(history: History, kept: Path, *, keep: bool = True) -> int:
    """Print what was broken, and keep the history of it."""
    found = violations(history)
    counts = f"{len(history.asked)} requests, {len(history.called)} calls of the upstream, "
    counts += f"{len(history.steered)} steerings, {len(history.edited)} edits, "
    say(f"  {counts}{len(history.recovered)} recordings, {len(found)} violations")
    for violation in found[:_SHOWN]:
        say(f"  {violation}")
    if found and keep:
        kept.parent.mkdir(exist_ok=True)
        history.save(kept)
        say(f"  the history is in {kept}")
    return len(found)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak")
    parser.add_argument("stores", nargs="*", help=" or ".join(KINDS))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--check", type=Path, default=None)
    given = parser.parse_args()
    if given.check is not None:
        return 1 if tell(load(given.check), given.check, keep=False) else 0
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    stores: list[Kind] = [kind for kind in KINDS if kind in (given.stores or KINDS)]
    if not set(given.stores) <= {*KINDS}:
        parser.error(f"stores are {' and '.join(KINDS)}")
    seconds = 60 * float(os.environ.get("MINUTES") or 3) / len(stores)
    try:
        broken = [store for store in stores if attack(store, seed, seconds)]
    finally:
        fork_server.stop()
    if broken:
        say(f"again: SEED={seed}; python -m soak {' '.join(broken)} --seed {seed}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
