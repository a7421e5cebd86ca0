"""Whether a store's index says of each recording what its request says."""

from collections.abc import Sequence
from dataclasses import replace

from tapeway.cli.cassette.verify import Keys, Problem
from tapeway.core.cassette.index import found_under
from tapeway.core.matching.rules import NONE
from tapeway.core.model.cassette import Held, TakenRecording
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tests.stores.recordings import recording

FIRST = recording(0).exchange
SECOND = recording(1).exchange
AGAIN = replace(FIRST, index=2)
TOOL = ForeignInteraction(3, {"kind": "tool", "response": 1})


class Index:
    """Finds what it is told to, and counts how often it is asked; the rest of a store is not used."""

    def __init__(self, *under: tuple[Interaction, Interaction]) -> None:
        self.asked = 0
        self._under = [(found_under(as_if)[0], item) for item, as_if in under]

    async def find(self, name: str, keys: Sequence[bytes]) -> Sequence[TakenRecording]:
        self.asked += 1
        return [TakenRecording(item) for key, item in self._under if key in keys]


async def gone_through(index: Index, *items: Held) -> list[Problem]:
    keys = Keys(index, "x", NONE)  # type: ignore[arg-type]
    return [*[told for each in items for told in await keys.problems(each)], *keys.left()]


async def test_all_that_is_found_where_it_should_be_is_well() -> None:
    index = Index((FIRST, FIRST), (SECOND, SECOND), (AGAIN, FIRST))

    assert await gone_through(index, FIRST, SECOND, AGAIN, TOOL) == []
    # Once a request, however many answers it has.
    assert index.asked == 2


async def test_one_that_is_not_found_is_told() -> None:
    told = await gone_through(Index((FIRST, FIRST)), FIRST, SECOND)

    assert [each.index for each in told] == [1]
    assert "does not find it" in told[0].reason


async def test_one_that_is_found_by_another_request_is_told() -> None:
    told = await gone_through(
        Index((FIRST, FIRST), (SECOND, SECOND), (SECOND, FIRST)), FIRST, SECOND
    )

    assert [each.index for each in told] == [1]
    assert "by a request it does not have" in told[0].reason
