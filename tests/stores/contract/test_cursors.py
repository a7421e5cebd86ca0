"""Whose turn it is, as clients of a proxy over each store see it."""

from collections.abc import Sequence

from tests.admin.admin_and_proxy import World, world
from tests.stores.contract.kinds import Kind, Place


async def test_the_kth_equal_request_of_a_take_gets_the_kth_answer(place: Place) -> None:
    await _record_three(place)

    async with world(store=place.again(), mode="replay") as player:
        assert await _answers(player, player, player, player) == [1, 2, 3, 3]
        await player.done("POST", "/api/v1/rewind")
        assert await _answers(player, player) == [1, 2]

    async with world(store=place.again(), mode="replay") as player:
        assert await _answers(player, player, player) == [1, 2, 3]


async def test_instances_of_a_shared_store_take_turns_and_others_have_their_own(
    kind: Kind, place: Place
) -> None:
    await _record_three(place)

    async with (
        world(store=place.again(), mode="replay") as one,
        world(store=place.again(), mode="replay") as two,
    ):
        assert await _answers(one, two, one) == ([1, 2, 3] if kind.shared else [1, 1, 2])


async def test_a_take_that_records_anew_replaces_what_earlier_ones_held(place: Place) -> None:
    await _record_three(place)

    async with world(store=place.again(), mode="record") as recorder:
        assert await _answers(recorder, recorder) == [1, 2]
    async with world(store=place.again(), mode="replay") as player:
        assert await _answers(player, player, player) == [1, 2, 2]


async def _record_three(place: Place) -> None:
    async with world(store=place.again(), mode="record") as recorder:
        assert await _answers(recorder, recorder, recorder) == [1, 2, 3]


async def _answers(*asked: World) -> Sequence[int]:
    found: list[int] = []
    for request in asked:
        response = await request.ask()
        assert response.status == 200, await response.text()
        found.append((await response.json())["answer"])
    return found
