"""The repeat rule that a cassette states, in force where the settings name none."""

from dataclasses import replace

import pytest

from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import Mode
from tapeway.engine.recorder import Policy
from tests.fakes.store import FakeStore
from tests.fakes.world import recorded, world


async def stating(rule: str, *bodies: str) -> FakeStore:
    store = await recorded(*bodies)
    stored = await store.load("default", writable=True)
    assert stored is not None
    head = CassetteHead("", "run-1", {"repeats": rule})
    await store.save("default", replace(stored, head=head))
    store.calls.clear()
    return store


@pytest.mark.parametrize(
    ("rule", "mode", "said"),
    [
        ("miss", "replay", ["1", "2", "miss", "miss"]),
        ("cycle", "replay", ["1", "2", "1", "2"]),
        ("first", "replay", ["1", "1", "1", "1"]),
        ("last", "replay", ["1", "2", "2", "2"]),
        # What is used up is asked for again and is a recording more.
        ("miss", "auto", ["1", "2", "answer 1", "answer 2"]),
        ("first", "auto", ["1", "1", "1", "1"]),
    ],
)
async def test_the_rule_of_the_cassette_is_in_force(rule: str, mode: Mode, said: list[str]) -> None:
    async with world(mode, store=await stating(rule, "1", "2")) as around:
        served = [await around.get() for _ in said]

    found = ["miss" if each.outcome == "miss" else each.body.decode() for each in served]
    assert found == said


async def test_what_the_settings_say_goes_before_it() -> None:
    store = await stating("miss", "1", "2")
    async with world("replay", policy=Policy(repeats="last"), store=store) as around:
        assert [(await around.get()).body for _ in range(3)] == [b"1", b"2", b"2"]
