"""Cassettes that are replaced and large bodies, in a store that several processes use."""

import asyncio
from dataclasses import replace

import pytest

from tapeway.body_files import body_pieces
from tapeway.ports import SharedStore
from tests.stores.large_bodies import body, kept, large
from tests.stores.recordings import HEAD, answers, bodies, indexes, recording
from tests.stores.shared_instances import (
    advanced,
    append_recordings,
    cursors_of,
    found_bodies,
    key,
    other_answer,
    recordings_under,
)

OTHER = replace(HEAD, run_id="run-2")


@pytest.fixture
async def pair_with_two(pair: list[SharedStore]) -> list[SharedStore]:
    """Instances of a store with a cassette `x`, and `y` that is to be put in its place."""
    await append_recordings(pair[0], 0, 1, 2)
    assert await advanced(pair[0], "x", 1, key(1), None, b"1", 1)
    await pair[0].append("y", OTHER, other_answer(1, 0, body=b"new"))
    return pair


async def test_a_cassette_takes_the_place_of_another(pair_with_two: list[SharedStore]) -> None:
    one, other = pair_with_two
    replacer = one
    assert replacer is not None
    before = await other.stat("x")

    await replacer.replace_cassette("x", "y")

    assert await other.names() == ["x"]
    outline = await other.outline("x")
    assert outline is not None
    assert (outline.head, outline.count) == (OTHER, 1)
    assert await other.outline("y") is None
    assert found_bodies(await recordings_under(other, "x", [key(1)])) == [b"new"]
    assert await recordings_under(other, "x", [key(0)]) == []
    assert await cursors_of(other, "x", 1, [key(1)]) == {}
    after = await other.stat("x")
    assert before is not None
    assert after is not None
    assert after.version != before.version


async def test_nothing_takes_the_place_of_none(pair_with_two: list[SharedStore]) -> None:
    one, other = pair_with_two
    replacer = one
    assert replacer is not None

    await replacer.replace_cassette("x", "nothing")

    assert await other.names() == ["x", "y"]
    assert bodies(await other.load("x", writable=False)) == answers(0, 1, 2)
    assert [cursor.state for cursor in (await cursors_of(other, "x", 1, [key(1)])).values()] == [
        b"1"
    ]


async def test_a_cassette_is_given_a_name_nobody_has(pair_with_two: list[SharedStore]) -> None:
    one, other = pair_with_two
    replacer = one
    assert replacer is not None

    await replacer.replace_cassette("z", "y")

    assert await other.names() == ["x", "z"]
    assert bodies(await other.load("z", writable=False)) == [b"new"]


async def test_no_index_is_given_out_twice_where_one_took_anothers_place(
    pair_with_two: list[SharedStore],
) -> None:
    one, other = pair_with_two
    replacer = one
    assert replacer is not None
    writer = one
    assert writer is not None
    reserved = await other.reserve("x")
    await replacer.replace_cassette("x", "y")

    await other.append("x", OTHER, other_answer(5, reserved))
    await writer.extend("x", OTHER, [recording(6).interaction])

    found = indexes(await other.load("x", writable=False))
    assert len(found) == len(set(found)) == 3
    assert found[:2] == [0, reserved]


async def test_a_body_is_found_by_its_digest_in_the_cassette_that_has_it(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    file = await kept(one, [body(1), body(2)])
    finder = other
    assert finder is not None
    assert await finder.body("x", file.digest) is None
    await one.append("x", HEAD, recording(0))
    await one.append("x", HEAD, large(1, file))
    await one.append("y", HEAD, recording(0))

    found = await finder.body("x", file.digest)

    assert found is not None
    assert (found.size, found.digest) == (file.size, file.digest)
    assert await asyncio.to_thread(lambda: b"".join(body_pieces(found))) == body(1) + body(2)
    assert await finder.body("y", file.digest) is None
    assert await finder.body("x", "0" * 64) is None
