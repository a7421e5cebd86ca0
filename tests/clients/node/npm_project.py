"""Folders with the programs of tests/clients/programs/node, and all they import, as after `npm install`."""

import json
import os
import select
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import fork_server

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "packages" / "node"
PROGRAMS = ROOT / "tests" / "clients" / "programs" / "node"
INSTALLED = ROOT / ".venv-clients" / "node"
_DEADLINE_S = 60

Output = subprocess.CompletedProcess[str]


def skip_unless_installed() -> None:
    """Skip the test where `make clients` was not called, or found no npm."""
    if shutil.which("node") is None or not (INSTALLED / "node_modules").exists():
        pytest.skip("Node.js and its packages are not installed: `make clients`")


def link_packages(folder: Path) -> Path:
    """The node_modules of a folder: what is installed, and our own package as npm packs it."""
    modules = folder / "node_modules"
    modules.mkdir()
    for path in (INSTALLED / "node_modules").iterdir():
        (modules / path.name).symlink_to(path)
    done = subprocess.run(
        ["npm", "pack", "--json", "--pack-destination", folder, PACKAGE],
        env=environment(folder),
        capture_output=True,
        check=True,
    )
    with tarfile.open(folder / json.loads(done.stdout)[0]["filename"]) as packed:
        packed.extractall(folder, filter="data")
    (folder / "package").rename(modules / "tapeway")
    return modules


def make_project(workshop: Path, program: str) -> Path:
    """A fresh copy of one of the programs, below the folder that has the packages."""
    number = len([*workshop.glob(f"{program}-*")])
    return Path(shutil.copytree(PROGRAMS / program, workshop / f"{program}-{number}"))


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The variables of a program: those of the machine that it needs, and no others."""
    folders = [fork_server.program().parent, Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(map(str, folders))
    return {"PATH": path, "HOME": str(folder), "NO_COLOR": "1", **more}


def run(project: Path, command: Sequence[str], **environ: str) -> Output:
    """Run a command of one of the packages, such as `vitest run`, or `node`."""
    name, *arguments = command
    binary = INSTALLED / "node_modules" / ".bin" / name
    return subprocess.run(
        [str(binary) if binary.exists() else name, *arguments],
        cwd=project,
        env=environment(project, **environ),
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )


def cassettes(folder: Path) -> set[str]:
    """The names of the cassettes in a folder."""
    return {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.json")}


def processes_in(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _works_in(path, folder)]


def remaining_in(folder: Path) -> list[int]:
    """Those that do not end by themselves: workers of a test runner may end a little after it."""
    return [pid for pid in processes_in(folder) if not _ends(pid)]


def _ends(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], _DEADLINE_S)[0])
    finally:
        os.close(process)


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:  # it has ended, or is another user's
        return False


Projects = Callable[[str], Path]
