"""How what is measured has changed since another commit.

python -m bench.against [COMMIT] [TABLE ...]

Without a commit it is the last tag. The tables are named as the modules of this folder: `replay`,
`recording` and `stores` without a name. Each table is measured in turns by the checkout and by a copy of the commit in
`build/base`, each with its own `bench`, both with the libraries of this environment: a table shows no
change otherwise, since its columns are servers of one run. Printed is the ratio of the medians of each
row and column that both have, the new one over the old.
"""

import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.figures import Table, text

ROOT = Path(__file__).parents[1]
BASE = ROOT / "build/base"
GIT = shutil.which("git") or "git"
TABLES = ("replay", "waits", "recording", "websocket", "stores", "bodies", "loading", "start")
USUAL = ("replay", "recording", "stores")
ROUNDS = 2
NOTABLE = 1.15
"""A ratio above this one is marked, and so is its inverse."""

_MEASURE = """
import importlib, json, sys
table = importlib.import_module(f"bench.{sys.argv[1]}").measure()
medians = {
    f"{row} | {column}": cell.median
    for row, cells in table.rows.items()
    for column, cell in zip(table.columns, cells)
    if hasattr(cell, "median")
}
print(json.dumps(medians), file=sys.stderr)
"""
"""Run in each checkout, which may print tables of its own to the standard output."""


def last_tag() -> str | None:
    """The newest tag before the present commit, if there is one."""
    found = subprocess.run(
        [GIT, "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip() or None


def unpack(commit: str) -> None:
    """Copy the files of a commit to `build/base`."""
    archive = subprocess.run(
        [GIT, "archive", "--format=tar", commit, "src", "bench", "tests"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    shutil.rmtree(BASE, ignore_errors=True)
    BASE.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as opened:
        opened.extractall(BASE, filter="data")


def medians(checkout: Path, table: str) -> dict[str, float]:
    """What a checkout measures: the median of each row and column."""
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE, table],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout)])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if measured.returncode:
        raise SystemExit(f"{checkout} cannot measure {table}:\n{measured.stderr}")
    found: dict[str, float] = json.loads(measured.stderr.splitlines()[-1])
    return found


def compared(name: str, rounds: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> Table:
    """A table of the rows and columns that each of the pairs, before and after, has."""
    rows = {}
    for what in rounds[0][1]:
        pairs = [(old[what], new[what]) for old, new in rounds if what in old and what in new]
        if pairs:
            before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratio = after / before if before else 1.0
            mark = "<--" if not 1 / NOTABLE <= ratio <= NOTABLE else ""
            rows[what] = (f"{before:,.2f}", f"{after:,.2f}", f"{ratio:.2f}", mark)
    return Table(name, ("before", "after", "ratio", ""), rows)


def main(arguments: list[str]) -> None:
    """Compare these tables, or the usual ones."""
    named = [name for name in arguments if name not in TABLES]
    commit = named[0] if named else last_tag()
    if commit is None:
        print("There is no tag to compare with. Name a commit: make bench BASE=COMMIT")
        return
    tables = [name for name in arguments if name in TABLES] or USUAL
    unpack(commit)
    for name in tables:
        rounds = [(medians(BASE, name), medians(ROOT, name)) for _ in range(ROUNDS)]
        print(text(compared(f"{name}, against {commit}", rounds)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
