"""Cassettes in memory, when somebody changes their files meanwhile."""

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.engine.broker import Broker
from tapeway.engine.cassettes import loaded as memory_cassettes
from tapeway.engine.cassettes.loaded import Loaded
from tapeway.engine.recording.selection import Policy
from tapeway.errors import CassetteCorrupt, CassetteEdited, StoreError
from tapeway.stores.file import snapshot
from tapeway.stores.file.store import FileStore
from tests.support.fakes.broker import HEAD, ROUTES, note, until
from tests.support.fakes.live_service import FakeResponder
from tests.support.reuse import REUSED

ASKED = Request("openai", "GET", "/v1/x", base="https://up")


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A cassette whose only answer is `before`."""
    store = FileStore(tmp_path)
    answer = Response(ResponseHead(200), b"before")
    await store.append("x", CassetteHead("", "run-1"), Recording(Interaction(0, ASKED, answer)))
    await store.release("x")
    await store.close()
    return tmp_path / "x.json"


@asynccontextmanager
async def serving(file: Path, mode: Mode = "replay") -> AsyncIterator[Broker]:
    broker = Broker(
        FileStore(file.parent),
        FakeResponder(),
        mode=mode,
        cassette="x",
        routes=ROUTES,
        policy=Policy(),
        new_head=lambda: HEAD,
        rules=REUSED,
    )
    async with broker:
        yield broker


async def replayed(broker: Broker) -> bytes:
    plan = await broker.decide("x", Incoming(ASKED))
    assert isinstance(plan, Replay)
    note(broker, "replayed", "x", plan)
    return plan.interaction.response.body


def edit(file: Path) -> None:
    file.write_text(file.read_text().replace("before", "edited"))


async def look_twice(broker: Broker) -> None:
    assert isinstance(broker.source, Loaded)
    await broker.source.refresh()
    await broker.source.refresh()


async def test_an_edit_is_replayed_once_the_file_stops_changing(file: Path) -> None:
    async with serving(file) as broker:
        assert await replayed(broker) == b"before"
        takes = broker.takes
        edit(file)
        assert await replayed(broker) == b"before"

        await look_twice(broker)

        assert await replayed(broker) == b"edited"
        assert broker.takes == takes + 1
        (report,) = await broker.reports()
        assert report.replayed == 3, "what was counted before stays counted"


async def test_what_nobody_changed_stays_in_its_take(file: Path) -> None:
    async with serving(file) as broker:
        await replayed(broker)
        cassette, takes = broker.cassette(), broker.takes

        await look_twice(broker)

        assert broker.cassette() is cassette
        assert broker.takes == takes


async def test_an_edit_that_cannot_be_read_says_where(file: Path) -> None:
    async with serving(file) as broker:
        await replayed(broker)
        whole = file.read_text()
        file.write_text(whole[:-20])
        await look_twice(broker)

        with pytest.raises(CassetteCorrupt, match=r"x\.json"):
            await replayed(broker)

        file.write_text(whole)
        assert await replayed(broker) == b"before"


async def test_a_cassette_that_comes_later_is_noticed(file: Path) -> None:
    text = file.read_text()
    file.unlink()
    async with serving(file) as broker:
        await broker.prepare()
        file.write_text(text)
        await look_twice(broker)

        assert await replayed(broker) == b"before"


async def test_a_cassette_that_is_recorded_to_is_not_reloaded(file: Path) -> None:
    async with serving(file, "auto") as broker:
        await replayed(broker)
        edit(file)
        await look_twice(broker)

        assert await replayed(broker) == b"before"
    assert "edited" in file.read_text()


async def test_a_change_seen_while_nothing_records_is_not_overwritten_later(file: Path) -> None:
    async with serving(file) as broker:
        await replayed(broker)
        await broker.set_mode("auto")
        edit(file)
        await look_twice(broker)
        plan = await broker.decide(
            "x", Incoming(Request("openai", "GET", "/new", base="https://up"))
        )

        with pytest.raises(CassetteEdited):
            await broker.recorder.perform(plan)  # type: ignore[arg-type]  # a new request is asked
    assert "edited" in file.read_text()


async def test_files_are_checked_regularly_and_errors_do_not_stop_that(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tapeway.engine.cassettes.loaded.EVERY_S", 0.0)
    async with serving(file) as broker, asyncio.timeout(60):
        await replayed(broker)
        assert isinstance(broker.store, FileStore)
        look, failed = broker.store.stats, 0

        async def away(names: Sequence[str]) -> object:
            nonlocal failed
            failed += 1
            raise StoreError("the folder cannot be read")

        with caplog.at_level(logging.WARNING, "tapeway.engine.cassettes.loaded"):
            monkeypatch.setattr(broker.store, "stats", away)
            await until(lambda: failed >= 5)
            monkeypatch.setattr(broker.store, "stats", look)
        edit(file)
        while await replayed(broker) != b"edited":  # noqa: ASYNC110 - asking is what is tested
            await asyncio.sleep(0)

    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "cannot check whether cassettes were changed: the folder cannot be read"
    ]


async def test_cassettes_that_are_not_loaded_leave_nothing_in_what_is_in_force(file: Path) -> None:
    async with serving(file) as broker:
        for number in range(50):
            await broker.rewind(f"d{number}")
            await broker.decide(f"e{number}", Incoming(ASKED))
            await broker.eject(f"e{number}")
        control = broker.source.control

    assert len(control.cassette_takes) <= 1
    assert control.takes >= 100


async def test_a_cassette_whose_take_was_forgotten_replays_from_its_beginning(file: Path) -> None:
    async with serving(file) as broker:
        assert await replayed(broker) == b"before"
        await broker.eject("x")
        assert await replayed(broker) == b"before"
        await broker.rewind("x")

        assert await replayed(broker) == b"before"


async def test_an_ejected_cassette_is_freed_without_garbage_collection(file: Path) -> None:
    async with serving(file, "auto") as broker:
        for target in ("/a", "/b"):
            plan = await broker.decide("x", Incoming(replace(ASKED, target=target)))
            assert isinstance(plan, LiveCall)
            await broker.recorder.perform(plan)
        del plan
        await replayed(broker)
        cassette = broker.cassette()
        assert cassette is not None
        assert cassette.correlation is not None
        freed, loop = asyncio.Queue[None](), asyncio.get_running_loop()

        def note_freed(_: object) -> None:
            loop.call_soon_threadsafe(freed.put_nowait, None)

        watched = (
            weakref.ref(cassette, note_freed),
            weakref.ref(cassette.correlation.issued, note_freed),
        )
        del cassette

        gc.collect()
        gc.disable()
        try:
            await broker.eject()
            for _ in watched:
                await asyncio.wait_for(freed.get(), 60)
        finally:
            gc.enable()
        assert not any(reference() for reference in watched)


async def test_what_is_unloaded_is_freed_part_by_part(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[object] = []
    monkeypatch.setattr(memory_cassettes, "free_later", freed.extend)
    async with serving(file) as broker:
        assert await replayed(broker) == b"before"
        await broker.eject()

    assert {type(value).__name__ for value in freed} == {"Interaction"}


async def test_while_many_cassettes_are_counted_others_have_turns(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_cassettes, "COUNTED_AT_ONCE", 2)
    async with serving(file) as broker, asyncio.TaskGroup() as tasks:
        for name in "abcd":
            await broker.insert(name)
        counting = tasks.create_task(broker.source.counts())
        await asyncio.sleep(0)
        assert not counting.done()
        # One that goes meanwhile is counted as it was.
        await broker.eject("d")

    assert [count.name for count in counting.result()] == [*"abcd"]


@pytest.fixture
def in_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have recordings stay in their file, however small it is."""
    monkeypatch.setattr(snapshot, "SMALLEST_FILE", 1)


@pytest.mark.usefixtures("in_its_file")
async def test_an_edit_in_place_of_what_stays_in_its_file_is_replayed_at_once(file: Path) -> None:
    async with serving(file) as broker:
        await broker.prepare()
        takes = broker.takes
        edit(file)

        assert await replayed(broker) == b"edited"
        assert broker.takes == takes + 1


@pytest.mark.usefixtures("in_its_file")
async def test_a_file_that_is_replaced_answers_as_it_was_loaded_until_it_is_noticed(
    file: Path,
) -> None:
    async with serving(file) as broker:
        await broker.prepare()
        other = file.with_name("other")
        other.write_text(file.read_text().replace("before", "edited"))
        other.rename(file)
        assert await replayed(broker) == b"before"

        await look_twice(broker)
        assert await replayed(broker) == b"edited"


@pytest.mark.usefixtures("in_its_file")
async def test_an_edit_in_place_of_a_cassette_that_is_recorded_to_is_an_error(file: Path) -> None:
    async with serving(file, "auto") as broker:
        await broker.prepare()
        edit(file)
        with pytest.raises(CassetteEdited, match="was changed in place"):
            await broker.decide("x", Incoming(ASKED))
    assert "edited" in file.read_text()


@pytest.mark.usefixtures("in_its_file")
@pytest.mark.parametrize("mode", ["replay", "auto"])
async def test_a_cassette_that_was_edited_in_place_is_reported_and_ejected(
    file: Path, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(file, mode) as broker:
        await broker.prepare()
        edit(file)

        (report,) = await broker.reports()
        assert not report.unused
        await broker.eject()
        assert caplog.messages.count(caplog.messages[-1]) == 2
        assert caplog.messages[-1].endswith("the report of cassette 'x' names no recordings")
        assert await replayed(broker) == b"edited"
