"""Disks for tests: one that is full soon, one that cannot be written."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[None]:
    """Mount a disk of so many KiB on a folder, or skip the test where that is forbidden."""
    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Forbid writing into a folder; root, whom modes do not stop, gets a read-only mount."""
    if os.geteuid() != 0:
        mode = folder.stat().st_mode
        folder.chmod(0o500)
        try:
            yield
        finally:
            folder.chmod(mode)
        return
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def mount(*arguments: str) -> None:
    """Call mount, or skip the test where that is forbidden."""
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
