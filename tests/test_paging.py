"""Going through a cassette in order, whatever its store gives out at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.paging import BATCH_BYTES, PAGE_BYTES, CassetteRef, batch_from
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.stores.recordings import HEAD, recording
from tests.support.fakes.shared_store import BitByBitStore

TOOL = ForeignInteraction(3, {"kind": "tool", "request": {"name": "f"}, "response": 1})


@pytest.fixture(params=["memory", "file", "bit by bit"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CassetteStore:
    made: dict[str, CassetteStore] = {
        "memory": MemoryStore(),
        "file": FileStore(tmp_path),
        "bit by bit": BitByBitStore(),
    }
    return made[request.param]


async def test_all_comes_in_order_with_head_and_count(store: CassetteStore) -> None:
    items = tuple([recording(index).interaction for index in range(40)])
    await store.save("x", StoredCassette(HEAD, (*items, TOOL)))

    found = await CassetteRef.of(store, "x").find()

    assert found is not None
    assert (found.head, found.count) == (HEAD, 41)
    assert [item.index for item in [item async for item in found.items]] == list(range(41))
    assert await CassetteRef.of(store, "y").find() is None
    await store.close()


async def test_a_store_that_has_pages_is_not_loaded() -> None:
    store = BitByBitStore()
    items = [recording(index).interaction for index in range(600)]
    await store.save("x", StoredCassette(HEAD, tuple(items)))
    await store.edit("x", 599, None)
    store.loads = 0

    found = await CassetteRef.of(store, "x").find()
    assert found is not None
    assert found.count == 599
    assert store.pages == []
    assert [item async for item in found.items] == items[:-1]
    assert store.loads == 0
    # Small ones come many at a time.
    assert store.pages == [8, 16, 32, 64, 128, 256, 256, 256]


async def test_heavy_recordings_come_few_at_a_time() -> None:
    store = BitByBitStore()
    made = recording(0).exchange
    file = BodyFile("", PAGE_BYTES, "00" * 32)
    heavy = replace(made, response=replace(made.response, body=b"", file=file))
    await store.save("x", StoredCassette(HEAD, (heavy,) * 20))

    found = await CassetteRef.of(store, "x").find()

    assert found is not None
    assert len([item async for item in found.items]) == 20
    assert store.pages == [8, 2] + [1] * 11


def test_a_batch_ends_with_the_recording_that_fills_it() -> None:
    made = recording(0).exchange
    half = replace(made, response=replace(made.response, body=b"x" * (BATCH_BYTES // 2)))
    items = [
        half,
        half,
        made,
        replace(half, request=replace(made.request, body=half.response.body)),
    ]
    items += [made] * 9

    batches = []
    start = 0
    while batch := batch_from(items, start, 4):
        batches.append(len(batch))
        start += len(batch)

    assert batches == [2, 2, 4, 4, 1]
    assert start == len(items)
