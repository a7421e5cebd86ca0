"""Bodies in temporary files: whole, checked, gone when nobody needs them any more."""

import asyncio
import copy
import hashlib
import os
import threading
import time
from collections.abc import Generator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.body_files import (
    PIECE,
    BodyBuffer,
    Spool,
    VerifiedFiles,
    body_pieces,
    check_body_file,
    in_threads,
    read_body,
    stream_body,
)
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, StoreError, StoreFull
from tests.stores.small_disks import small_disk
from tests.support.leftovers import unnamed_files

KIB = 1024
BODY = os.urandom(3 * PIECE + 17)


async def spooled(body: bytes, folder: Path, step: int = 10_001) -> BodyFile:
    spool = Spool(str(folder))
    for start in range(0, len(body), step):
        await spool.add(body[start : start + step])
    return await spool.finish()


def named(folder: Path, body: bytes) -> BodyFile:
    path = folder / "body"
    path.write_bytes(body)
    return BodyFile(str(path), len(body), hashlib.sha256(body).hexdigest())


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, len(BODY)])
async def test_a_body_comes_back_as_it_went_in(size: int, tmp_path: Path) -> None:
    file = await spooled(BODY[:size], tmp_path)

    assert file.size == size
    assert await read_body(file) == BODY[:size]
    # And again, and by two at once.
    assert [await read_body(file), b"".join(body_pieces(file))] == [BODY[:size]] * 2
    assert list(tmp_path.iterdir()) == []


async def test_nothing_larger_than_a_piece_is_read_at_once(tmp_path: Path) -> None:
    assert max(len(piece) for piece in body_pieces(await spooled(BODY, tmp_path))) == PIECE


async def test_the_file_lives_as_long_as_somebody_refers_to_it(tmp_path: Path) -> None:
    def open_files() -> int:
        return len([path for path in unnamed_files() if path.startswith(str(tmp_path))])

    file = await spooled(BODY, tmp_path)
    # A thread that has written for it refers to it for a moment longer.
    await asyncio.get_running_loop().shutdown_default_executor()
    another = copy.deepcopy(replace(file, digest="x"))
    del file
    assert open_files() == 1
    assert another.handle is not None
    del another

    assert open_files() == 0


async def test_a_reader_that_stops_early_leaves_nothing_open(tmp_path: Path) -> None:
    file = named(tmp_path, BODY)
    before = len(os.listdir("/proc/self/fd"))

    async with aclosing(stream_body(file)) as source:
        assert await anext(source) == BODY[:PIECE]

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("at", [0, PIECE, len(BODY) - 1])
def test_a_changed_file_is_never_given_whole(at: int, tmp_path: Path) -> None:
    file = named(tmp_path, BODY)
    changed = bytearray(BODY)
    changed[at] ^= 1
    Path(file.path).write_bytes(changed)
    check_body_file(file)

    given: list[bytes] = []
    with pytest.raises(CassetteCorrupt, match="was changed since it was recorded"):
        given.extend(body_pieces(file))
    assert sum(map(len, given)) < len(BODY)


@pytest.mark.parametrize("body", [b"", BODY[:-1], BODY + b"!"])
def test_a_file_of_another_size_is_refused(body: bytes, tmp_path: Path) -> None:
    file = named(tmp_path, BODY)
    Path(file.path).write_bytes(body)

    with pytest.raises(CassetteCorrupt, match="was changed"):
        check_body_file(file)
    with pytest.raises(CassetteCorrupt, match="was changed"):
        b"".join(body_pieces(file))


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    file = named(tmp_path, BODY)
    Path(file.path).unlink()

    for look in (check_body_file, lambda file: list(body_pieces(file))):
        with pytest.raises(CassetteCorrupt, match=r"body cannot be read .*: restore it"):
            look(file)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    file = named(tmp_path, BODY)
    Path(file.path).rename(tmp_path / "elsewhere")
    Path(file.path).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CassetteCorrupt):
        list(body_pieces(file))


async def test_a_full_disk_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kib=256), pytest.raises(StoreFull, match="free some room"):
        await spooled(BODY, tmp_path / "disk")


async def test_no_folder_for_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="could not write a large body"):
        await spooled(BODY, tmp_path / "none")


@pytest.mark.parametrize("size", [0, 99, 100, 101, 5000])
async def test_up_to_its_bound_an_intake_stays_in_memory(size: int, tmp_path: Path) -> None:
    intake = BodyBuffer(100, str(tmp_path))
    for start in range(0, size, 7):
        await intake.add(BODY[start : min(size, start + 7)])

    taken = await intake.finish()

    assert intake.size == size
    assert isinstance(taken, bytes) is (size <= 100)
    assert (taken if isinstance(taken, bytes) else await read_body(taken)) == BODY[:size]


async def test_a_reader_that_is_cancelled_ends_as_cancelled_and_its_step_ends_by_itself() -> None:
    begun, going_on, closed = threading.Event(), threading.Event(), threading.Event()

    def steps() -> Generator[bytes]:
        try:
            begun.set()
            going_on.wait(60)
            yield b"late"
        finally:
            closed.set()

    async def read() -> None:
        async with aclosing(in_threads(steps())) as source:
            async for _ in source:
                pass

    reader = asyncio.get_running_loop().create_task(read())
    await asyncio.to_thread(begun.wait, 60)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert not closed.is_set()
    going_on.set()

    assert await asyncio.to_thread(closed.wait, 60)


async def test_a_step_that_fails_closes_its_source(tmp_path: Path) -> None:
    file = named(tmp_path, BODY)
    (tmp_path / "body").write_bytes(BODY[:-1])

    with pytest.raises(CassetteCorrupt):
        await read_body(file)


HOUR_NS = 3_600_000_000_000


def verified(monkeypatch: pytest.MonkeyPatch, *, later_ns: int = HOUR_NS) -> VerifiedFiles:
    """No files yet, and a clock that is ahead of the files' times."""
    files = VerifiedFiles(lambda: time.time_ns() + later_ns)
    # One for the process: what other tests read is in it.
    monkeypatch.setattr("tapeway.body_files._verified", files)
    return files


class Digests:
    """Counts what is hashed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hashed = 0
        self._new = hashlib.sha256
        monkeypatch.setattr(hashlib, "sha256", self._counting)

    def _counting(self) -> Any:
        counting, digest = self, self._new()

        class Digest:
            def update(self, piece: bytes) -> None:
                counting.hashed += len(piece)
                digest.update(piece)

            def hexdigest(self) -> str:
                return digest.hexdigest()

        return Digest()


def test_a_file_that_was_not_changed_is_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = named(tmp_path, BODY)
    verified(monkeypatch)
    digests = Digests(monkeypatch)

    assert [b"".join(body_pieces(file)) for _ in range(3)] == [BODY] * 3
    assert digests.hashed == len(BODY)


def test_a_file_that_changed_just_now_is_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = named(tmp_path, BODY)
    verified(monkeypatch, later_ns=0)
    digests = Digests(monkeypatch)

    assert [b"".join(body_pieces(file)) for _ in range(2)] == [BODY] * 2
    assert digests.hashed == 2 * len(BODY)


def test_a_change_after_that_is_seen_also_if_its_time_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = named(tmp_path, BODY)
    verified(monkeypatch)
    assert b"".join(body_pieces(file)) == BODY
    times = os.stat(file.path)
    Path(file.path).write_bytes(BODY[:-1] + bytes([BODY[-1] ^ 1]))
    os.utime(file.path, ns=(times.st_atime_ns, times.st_mtime_ns))

    with pytest.raises(CassetteCorrupt, match="was changed since it was recorded"):
        list(body_pieces(file))


def test_a_change_while_a_verified_file_is_read_is_seen_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = named(tmp_path, BODY)
    verified(monkeypatch)
    assert b"".join(body_pieces(file)) == BODY
    reading = body_pieces(file)
    next(reading)
    Path(file.path).write_bytes(b"x" * len(BODY))

    with pytest.raises(CassetteCorrupt, match="was changed since it was recorded"):
        list(reading)


def test_a_file_that_changed_while_it_was_hashed_is_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = named(tmp_path, BODY)
    files = verified(monkeypatch)
    before = os.stat(file.path)
    os.utime(file.path, ns=(0, 0))

    files.add(before, os.stat(file.path), file.digest)

    assert not files.has(os.stat(file.path), file.digest)


def test_only_so_many_verified_files_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeway.body_files.MOST_VERIFIED", 2)
    files = verified(monkeypatch)
    looks = []
    for character in "abc":
        (tmp_path / character).write_text(character)
        looks.append(os.stat(tmp_path / character))
        files.add(looks[-1], looks[-1], character)

    assert [files.has(look, digest) for look, digest in zip(looks, "abc", strict=True)] == [
        False,
        True,
        True,
    ]


def test_pieces_are_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    sizes = iter([7, 100, *[PIECE] * 9])

    pieces = list(body_pieces(named(tmp_path, BODY), lambda: next(sizes)))

    assert [len(piece) for piece in pieces[:3]] == [7, 100, PIECE]
    assert b"".join(pieces) == BODY
