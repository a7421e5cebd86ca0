"""Changes that depend on what was read before: of two that saw the same, one is refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.condition import Condition
from tapeway.engine.broker import Broker
from tapeway.engine.editing.changes import Addition, digest_of
from tapeway.errors import AdminError, TapewayError
from tapeway.formats.native.document import interaction_digest
from tests.stores.contract.kinds import Kind, Place
from tests.stores.recordings import HEAD, bodies, recording
from tests.support.fakes.broker_setups import brokers_on
from tests.support.fakes.live_service import numbered

ROUNDS = 4


@pytest.fixture
async def editors(kind: Kind, place: Place) -> AsyncIterator[list[Broker]]:
    """Two processes where several may write, else one: there the other finds it locked."""
    several = kind.shared or kind.name == "remote"
    stores = [place.again() for _ in range(2 if several else 1)]
    async with brokers_on(stores, numbered, mode="replay", repeats=None) as setup:
        yield [setup.brokers[0], setup.brokers[-1]]


async def outcomes(*changes: Awaitable[object]) -> list[str]:
    """What became of changes made at once."""
    found = await asyncio.gather(*changes, return_exceptions=True)
    return sorted([_outcome(outcome) for outcome in found])


def _outcome(result: object) -> str:
    if isinstance(result, TapewayError):
        return f"{result.status} {result.code}"
    assert not isinstance(result, BaseException), result
    return "done"


ONE_OF_TWO = ["412 precondition_failed", "done"]


def whole(number: int) -> StoredCassette:
    return StoredCassette(HEAD, (recording(number).interaction,))


async def stored(broker: Broker) -> StoredCassette:
    found = await broker.editor.stored("x")
    assert found is not None
    return found


async def seen(broker: Broker) -> Condition:
    digest = await digest_of(await stored(broker))
    assert digest is not None
    return Condition(match=frozenset([digest]))


async def test_of_two_edits_that_saw_the_same_one_is_refused(editors: Sequence[Broker]) -> None:
    one, other = editors
    await one.editor.append("x", [Addition(recording(0).interaction)])
    for number in range(1, ROUNDS):
        (held,) = (await stored(one)).interactions
        condition = Condition(match=frozenset([interaction_digest(held)]))
        changed = [
            replace(recording(at).exchange, index=held.index) for at in (number, 100 + number)
        ]

        found = await outcomes(
            one.editor.edit("x", held.index, changed[0], condition),
            other.editor.edit("x", held.index, changed[1], condition),
        )

        assert found == ONE_OF_TWO
        assert len(bodies(await stored(other))) == 1


async def test_of_two_cassettes_put_for_the_same_one_is_refused(editors: Sequence[Broker]) -> None:
    one, other = editors
    await one.editor.put("x", whole(0))
    for number in range(1, ROUNDS):
        condition = await seen(one)

        found = await outcomes(
            one.editor.put("x", whole(number), condition),
            other.editor.put("x", whole(100 + number), condition),
        )

        assert found == ONE_OF_TWO


async def test_of_two_cassettes_put_where_none_was_one_is_refused(
    editors: Sequence[Broker],
) -> None:
    one, other = editors
    absent = Condition(absent=True)

    found = await outcomes(
        one.editor.put("x", whole(1), absent), other.editor.put("x", whole(2), absent)
    )

    assert found == ONE_OF_TWO
    assert len(bodies(await stored(other))) == 1


async def test_what_was_changed_meanwhile_is_not_removed(editors: Sequence[Broker]) -> None:
    one, other = editors
    await one.editor.put("x", whole(0))
    condition = await seen(one)

    found = await outcomes(
        one.editor.remove("x", condition), other.editor.put("x", whole(1), condition)
    )

    assert found == ONE_OF_TWO


async def test_a_recording_that_came_meanwhile_is_not_lost(editors: Sequence[Broker]) -> None:
    one, other = editors
    await one.editor.put("x", whole(0))
    condition = await seen(one)
    await other.editor.append("x", [Addition(recording(7).interaction)])

    with pytest.raises(AdminError, match="changed meanwhile") as refused:
        await one.editor.put("x", whole(1), condition)

    assert refused.value.status == 412
    assert len(bodies(await stored(other))) == 2
