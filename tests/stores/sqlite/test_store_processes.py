"""A SQLite file belongs to one process that writes; others look in."""

import socket
from pathlib import Path

import pytest

from tapeway.errors import CassetteEdited, CassetteLocked
from tests.stores.recordings import HEAD, answers, bodies, indexes, recording
from tests.stores.shared_instances import append_recordings
from tests.stores.sqlite.conftest import opened
from tests.stores.sqlite.other_process import peer


async def test_a_second_process_that_writes_is_refused_with_the_name_of_the_first(
    file: Path,
) -> None:
    with peer(file) as other:
        async with opened(file) as store:
            for write in (
                store.append("y", HEAD, recording(1)),
                store.load("y", writable=True),
                store.remove("x"),
                store.keep("y", [b"large"]),
            ):
                with pytest.raises(CassetteLocked) as refused:
                    await write
            assert refused.value.code == "cassette_locked"
            assert f"process {other.pid} (" in refused.value.message
            assert f"on {socket.gethostname()} writes into {file}" in refused.value.message
            assert "postgresql://" in refused.value.message


async def test_a_second_process_looks_in_while_the_first_records(file: Path) -> None:
    with peer(file):
        async with opened(file) as store:
            assert await store.names() == ["x"]
            assert bodies(await store.load("x", writable=False)) == answers(0)
            assert await store.check() == []
            assert await store.erase() == []


async def test_a_killed_process_leaves_the_file_to_the_next_one(file: Path) -> None:
    with peer(file) as other:
        other.kill()
        other.wait()
        async with opened(file) as store:
            await append_recordings(store, 1)
            assert bodies(await store.load("x", writable=False)) == answers(0, 1)


async def test_a_process_that_lets_go_of_its_cassettes_leaves_the_file_to_others(
    file: Path,
) -> None:
    async with opened(file) as first, opened(file) as second:
        await first.append("x", HEAD, recording(0))
        await first.append("y", HEAD, recording(0))
        await first.release("x")
        with pytest.raises(CassetteLocked):
            await second.append("x", HEAD, recording(1))
        await first.release("y")
        await second.append("x", HEAD, recording(1))
        with pytest.raises(CassetteLocked):
            await first.append("x", HEAD, recording(2))
        await second.release("x")
        await first.append("x", HEAD, recording(2))
        assert bodies(await second.load("x", writable=False)) == answers(0, 1, 2)


async def test_who_loaded_a_cassette_to_replay_it_does_not_record_over_anothers_change(
    file: Path,
) -> None:
    async with opened(file) as first, opened(file) as second:
        await append_recordings(first, 0)
        await first.release("x")
        await second.load("x", writable=False)
        await append_recordings(first, 1)
        await first.release("x")

        with pytest.raises(CassetteEdited, match="since it was loaded for replay"):
            await second.load("x", writable=True)
        # It is loaded anew then, and nobody is kept from it.
        await first.load("x", writable=True)


async def test_a_recording_that_another_process_replaced_is_not_answered_with(file: Path) -> None:
    async with opened(file) as first, opened(file) as second:
        await append_recordings(first, 0, 1)
        await first.release("x")
        loaded = await second.load("x", writable=False)
        await first.append("x", HEAD, recording(2, 0))
        await first.erase()

        with pytest.raises(CassetteEdited, match="interaction 0: it was changed or removed"):
            bodies(loaded)


async def test_what_a_killed_process_left_unfinished_is_numbered_by_the_next_one(
    file: Path,
) -> None:
    with peer(file) as other:
        other.kill()
        other.wait()
    async with opened(file) as store:
        await store.append("x", HEAD, recording(7))
        assert indexes(await store.load("x", writable=True)) == [0, 7]
        await store.release("x")
        assert indexes(await store.load("x", writable=True)) == [0, 1]
