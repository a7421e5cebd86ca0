"""What clients call the identifiers of a take, the same for all instances of a shared store.

Each name is a turn of its own, so that conversations do not compete for one.
"""

from collections.abc import Mapping

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.correlation.unify import Bindings
from tapeway.core.model.control import CursorState
from tapeway.ports import SharedStore
from tapeway.second_look import Seen


async def recall(
    store: SharedStore, cassette: CassetteIndex, seen: Seen
) -> Mapping[bytes, CursorState]:
    """Have the take know what was called how, as far as it matters to what was seen."""
    sought = Bindings()
    for match in seen.matches:
        sought.learn(match.names)
    if not (keys := list(sought.states())):
        return {}
    turns = await store.turns(cassette.name, cassette.take.number, keys)
    cassette.take.bindings = Bindings.of({key: turn.state for key, turn in turns.items()})
    return turns


async def agree(
    store: SharedStore, cassette: CassetteIndex, before: Mapping[bytes, CursorState], index: int
) -> bool:
    """Tell all what the take has learnt by replaying this; False where another was quicker."""
    take = cassette.take
    for key, state in take.bindings.states().items():
        known = before.get(key)
        if known is not None and known.state == state:
            continue
        if not await store.advance(cassette.name, take.number, key, known, state, index):
            return False
    return True
