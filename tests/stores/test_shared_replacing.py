"""One cassette in the place of another, in a store that several processes use."""

from dataclasses import replace

import pytest

from tapeway.ports import Extensible, SharedStore, Swappable
from tests.stores.recordings import HEAD, answers, bodies, indexes, recording
from tests.stores.shared import again, found_bodies, key, take_in

OTHER = replace(HEAD, run_id="run-2")


@pytest.fixture
async def pair_with_two(pair: list[SharedStore]) -> list[SharedStore]:
    """Instances of a store with a cassette `x`, and `y` that is to be put in its place."""
    await take_in(pair[0], 0, 1, 2)
    assert await pair[0].advance("x", 1, key(1), None, b"1", 1)
    await pair[0].append("y", OTHER, again(1, 0, body=b"new"))
    return pair


async def test_a_cassette_takes_the_place_of_another(pair_with_two: list[SharedStore]) -> None:
    one, other = pair_with_two
    assert isinstance(one, Swappable)
    before = await other.stat("x")

    await one.supplant("x", "y")

    assert await other.names() == ["x"]
    outline = await other.outline("x")
    assert outline is not None
    assert (outline.head, outline.count) == (OTHER, 1)
    assert await other.outline("y") is None
    assert found_bodies(await other.find("x", [key(1)])) == [b"new"]
    assert await other.find("x", [key(0)]) == []
    assert await other.turns("x", 1, [key(1)]) == {}
    after = await other.stat("x")
    assert before is not None
    assert after is not None
    assert after.mark != before.mark


async def test_nothing_takes_the_place_of_none(pair_with_two: list[SharedStore]) -> None:
    one, other = pair_with_two
    assert isinstance(one, Swappable)

    await one.supplant("x", "nothing")

    assert await other.names() == ["x", "y"]
    assert bodies(await other.load("x", writable=False)) == answers(0, 1, 2)
    assert [each.state for each in (await other.turns("x", 1, [key(1)])).values()] == [b"1"]


async def test_a_cassette_is_given_a_name_nobody_has(pair_with_two: list[SharedStore]) -> None:
    one, other = pair_with_two
    assert isinstance(one, Swappable)

    await one.supplant("z", "y")

    assert await other.names() == ["x", "z"]
    assert bodies(await other.load("z", writable=False)) == [b"new"]


async def test_no_index_is_given_out_twice_where_one_took_anothers_place(
    pair_with_two: list[SharedStore],
) -> None:
    one, other = pair_with_two
    assert isinstance(one, Swappable)
    assert isinstance(one, Extensible)
    reserved = await other.reserve("x")
    await one.supplant("x", "y")

    await other.append("x", OTHER, again(5, reserved))
    await one.extend("x", OTHER, [recording(6).interaction])

    found = indexes(await other.load("x", writable=False))
    assert len(found) == len(set(found)) == 3
    assert found[:2] == [0, reserved]
