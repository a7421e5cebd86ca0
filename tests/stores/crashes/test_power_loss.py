"""The power goes while a process records onto a real file system."""

import fcntl
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tapeway.errors import CassetteCorrupt
from tapeway.stores.opening import open_store
from tests.stores.crashes.recording_process import writers
from tests.stores.recordings import bodies
from tests.stores.small_disks import mount

# ext4's own emergency stop: what has not reached the disk by now never will.
_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING = struct.pack("I", 2)


@pytest.mark.parametrize("recordings", [1, 40])
@pytest.mark.parametrize("store", ["", "sqlite:"])
async def test_what_was_acknowledged_survives_the_power(
    tmp_path: Path, store: str, recordings: int
) -> None:
    acknowledged, found = await _after_the_power_went(tmp_path, store, recordings)

    assert len(acknowledged) >= recordings
    assert set(acknowledged) <= set(found)
    assert found == sorted(set(found))


async def test_without_syncs_recordings_would_be_lost(tmp_path: Path) -> None:
    """The negative control: a disk that loses nothing would prove nothing."""
    acknowledged, found = await _after_the_power_went(tmp_path, "sqlite:", 40, "careless")

    assert not set(acknowledged) <= set(found)


async def _after_the_power_went(
    folder: Path, store: str, recordings: int, *how: str
) -> tuple[list[int], list[int]]:
    """What was acknowledged until then, and what is there afterwards."""
    image, disk = folder / "image", folder / "disk"
    _make_disk(image)
    url = f"{store}{disk}/cassettes"
    with _mounted(image, disk):
        acknowledged = _record_until_the_power_goes(disk, recordings, url, *how)
    with _mounted(image, disk):
        try:
            return acknowledged, await _numbers(url)
        except CassetteCorrupt:
            return acknowledged, []


async def _numbers(url: str) -> list[int]:
    store = open_store(url)
    await store.open()
    try:
        found = await store.load("x", writable=False)
        return [int(body[11:-1]) for body in bodies(found)] if found else []
    finally:
        await store.close()


def _record_until_the_power_goes(disk: Path, recordings: int, url: str, *how: str) -> list[int]:
    with writers(url, [0], *how) as (writer,):
        acknowledged = writer.acknowledged(recordings)
        # At rest: a sync under way in the very moment of the stop reports success, and is not.
        os.kill(writer.pid, signal.SIGSTOP)
        _wait_until_stopped(writer.pid)
        folder = os.open(disk, os.O_RDONLY)
        fcntl.ioctl(folder, _SHUTDOWN, _WITHOUT_FLUSHING)
        os.close(folder)
        writer.kill()
        return acknowledged + writer.rest()


def _wait_until_stopped(pid: int) -> None:
    def states() -> set[str]:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}

    deadline = time.monotonic() + 30
    while states() != {"T"}:
        assert time.monotonic() < deadline


def _make_disk(image: Path) -> None:
    with image.open("wb") as file:
        file.truncate(32 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
    except FileNotFoundError:
        pytest.skip("there is no mkfs.ext4 here")


@contextmanager
def _mounted(image: Path, disk: Path) -> Iterator[None]:
    disk.mkdir(exist_ok=True)
    mount("-o", "loop", str(image), str(disk))
    try:
        yield
    finally:
        subprocess.run(["umount", disk], check=True)
