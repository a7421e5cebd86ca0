"""The life of a store: opened, used, closed; what is there for the next one and for others."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import ConfigError, StoreError
from tapeway.ports import CassetteStore
from tapeway.stores.opening import open_store
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import PASSWORD, Kind, Place
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.support import fork_server

PROJECT = Path(__file__).parents[3]


async def test_a_store_says_what_it_is(kind: Kind, place: Place) -> None:
    store = place.again()

    assert re.match(r"[a-z]+:", store.url)
    assert PASSWORD not in store.url
    assert store.facts.durability in ("process", "disk", "primary", "remote")


async def test_opening_a_store_teaches_it_no_more_than_its_durability(
    kind: Kind, place: Place
) -> None:
    store = place.again()
    stated = store.facts

    assert (store.shared is not None) is kind.shared
    async with opened(store):
        found = store.facts
        assert replace(found, durability=stated.durability) == stated
    assert store.facts is found


async def test_a_place_that_cannot_be_used_is_named_with_its_cause(
    kind: Kind, server: str, tmp_path: Path
) -> None:
    unusable = kind.unusable(tmp_path, server)

    with pytest.raises((ConfigError, StoreError)) as refused:
        await open_store(unusable.url).open()

    assert unusable.shown in refused.value.message
    assert (refused.value.__cause__ is not None) is unusable.cause
    error: BaseException | None = refused.value
    while error is not None:
        assert PASSWORD not in f"{error!s}{error!r}"
        error = error.__cause__ or error.__context__


async def test_a_store_may_be_closed_twice_and_opened_again(place: Place) -> None:
    store = place.again()
    await store.close()
    for number in range(2):
        await store.open()
        await store.append("x", HEAD, recording(number))
        await store.close()
        await store.close()

    async with opened(store):
        assert bodies(await store.load("x", writable=False)) == answers(0, 1)


async def test_what_is_asked_of_a_closed_store_is_refused(store: CassetteStore) -> None:
    await store.append("x", HEAD, recording(0))
    await store.close()

    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: store.load("x", writable=False),
        lambda: store.load("x", writable=True),
        lambda: store.append("x", HEAD, recording(1)),
        lambda: store.save("x", StoredCassette(HEAD)),
        lambda: store.release("x"),
        lambda: store.remove("x"),
        lambda: store.names(),
        lambda: store.stat("x"),
    ]
    for request in asked:
        with pytest.raises(StoreError, match="closed") as refused:
            await request()
        assert store.url in refused.value.message


async def test_what_was_appended_is_there_for_a_second_store_at_once(place: Place) -> None:
    async with opened(place.again()) as first, opened(place.again()) as second:
        await first.append("x", HEAD, recording(0))
        assert bodies(await second.load("x", writable=False)) == answers(0)
        await second.release("x")
        await first.append("x", HEAD, recording(1))
        assert bodies(await second.load("x", writable=False)) == answers(0, 1)


async def test_another_process_finds_what_does_not_live_in_this_one(
    kind: Kind, place: Place
) -> None:
    async with opened(place.again()) as store:
        await store.append("x", HEAD, recording(0))
        kept = store.facts.durability != "process"

        assert await _elsewhere(place.url, "load") == (answers(0) if kept else [])
        await store.release("x")
        await _elsewhere(place.url, "append", "1")

        there = answers(0, 1) if kept else answers(0)
        assert bodies(await store.load("x", writable=False)) == there


async def _elsewhere(url: str, *work: str) -> list[bytes]:
    command = (*fork_server.command(), "-m", "tests.stores.contract.other_process", url, "x", *work)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=PROJECT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return [item.encode() for item in json.loads(output)]
