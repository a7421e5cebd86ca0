"""Slots: base URLs that stay the same while they are pointed at one cassette after the other."""

from collections.abc import Sequence

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.journal import given_rules
from tapeway.admin.models.schema import Nothing
from tapeway.admin.models.slots import RemovedSlot, SlotChange, SlotInForce
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.core.matching.rules import NO_RULES


async def get_slot(context: HandlerContext, call: PlainCall) -> SlotInForce:
    """Where a slot points."""
    return _in_force(context, call.slot)


async def put_slot(
    context: HandlerContext, call: OperationCall[Nothing, SlotChange]
) -> SlotInForce:
    """Point a slot at a cassette, in a new take of its own."""
    change = call.body
    rules = NO_RULES if change.rules is None else given_rules(change.rules)
    laggards = await context.broker.set_slot(call.slot, change.cassette, change.mode, rules)
    return _in_force(context, call.slot, laggards)


async def delete_slot(context: HandlerContext, call: PlainCall) -> RemovedSlot:
    """Remove a slot: requests through it get 404 from now on; its cassette stays loaded."""
    laggards = await context.broker.remove_slot(call.slot)
    return RemovedSlot(removed=call.slot, laggards=list(laggards))


def _in_force(context: HandlerContext, name: str, laggards: Sequence[str] = ()) -> SlotInForce:
    found = context.broker.slot(name)
    return SlotInForce(
        slot=name,
        cassette=found.cassette,
        mode=found.mode or context.broker.mode_of(found.cassette),
        take=found.take,
        laggards=list(laggards),
    )
