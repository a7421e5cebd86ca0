"""Slots: constant base URLs that are pointed at a new cassette for each test."""

import json
from dataclasses import replace

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.control import given_faults
from tapeway.admin.handlers.journal import given_rules
from tapeway.admin.models.schema import Nothing
from tapeway.admin.models.slots import (
    Checked,
    RemovedSlot,
    SentPage,
    SentQuery,
    SentRequest,
    SlotChange,
    SlotInForce,
)
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.messages import Request
from tapeway.engine.journal import SentThroughSlot


async def get_slot(context: HandlerContext, call: PlainCall) -> SlotInForce:
    """Where a slot points."""
    return _in_force(context, call.slot)


async def put_slot(
    context: HandlerContext, call: OperationCall[Nothing, SlotChange]
) -> SlotInForce:
    """Point a slot at a cassette, in a new take of its own."""
    change = call.body
    rules = NO_RULES if change.rules is None else given_rules(change.rules)
    faults = given_faults(change.faults or ())
    await context.broker.set_slot(
        call.slot, change.cassette, change.mode, rules, change.record_command, faults
    )
    return _in_force(context, call.slot)


async def check(context: HandlerContext, call: OperationCall[Nothing, SlotChange]) -> Checked:
    """Whether a slot could be pointed so: refuses wrong names, rules and faults, and changes nothing."""
    if call.body.rules is not None:
        given_rules(call.body.rules)
    given_faults(call.body.faults or ())
    return Checked(cassette=call.body.cassette)


async def delete_slot(context: HandlerContext, call: PlainCall) -> RemovedSlot:
    """Remove a slot: requests through it get 404 from now on; its cassette stays loaded."""
    await context.broker.remove_slot(call.slot)
    return RemovedSlot(removed=call.slot)


async def list_slot_requests(
    context: HandlerContext, call: OperationCall[SentQuery, Nothing]
) -> SentPage:
    """What was sent through a slot: method, path, headers and parsed body."""
    take, since = call.query.take, call.query.since
    if take is None and since is None:
        since = context.broker.slot(call.slot).since
    sent = context.journal.sent
    redaction = context.broker.redaction
    for kept in sent.of_slot(call.slot):
        # What one request tells of is replaced in the others too.
        _, taught = redaction.redact_and_learn(sent.salt, replace(kept.request, file=None))
        redaction.learn(sent.salt, taught)
    return SentPage(
        requests=[
            _sent_request(kept, redaction.redact(sent.salt, replace(kept.request, file=None)))
            for kept in sent.of_slot(call.slot)
            if take in (None, kept.take) and kept.take >= (since or 0)
        ]
    )


def _sent_request(sent: SentThroughSlot, request: Request) -> SentRequest:
    return SentRequest(
        id=sent.id,
        take=sent.take,
        method=request.method,
        route=request.route,
        path=request.target,
        headers=[
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers
        ],
        body=_parsed(request.body),
    )


def _parsed(body: bytes) -> object:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text or None


def _in_force(context: HandlerContext, name: str) -> SlotInForce:
    slot = context.broker.slot(name)
    return SlotInForce(
        slot=name,
        cassette=slot.cassette,
        mode=slot.mode or context.broker.mode_of(slot.cassette),
        take=slot.take,
    )
