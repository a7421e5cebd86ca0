"""A request asked again: whether that is possible, the cost, and the new answer.

A recorded one is asked for a look at both answers, a missed one in order to record it.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import asdict, replace

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.inspection.comparison import placed_pair, rules_in_force
from tapeway.admin.handlers.inspection.exchange import the_interaction
from tapeway.admin.handlers.interactions import interaction_document
from tapeway.admin.handlers.journal import the_entry
from tapeway.admin.models.inspection import LiveReadiness, RecordedMiss
from tapeway.admin.operation import PlainCall
from tapeway.admin.responses import json_response
from tapeway.core.cassette.plan import Incoming, Replay
from tapeway.core.http.content_codings import readable_response
from tapeway.core.http.routing import assign_route
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss, MissedRequest
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response
from tapeway.errors import AdminError, Draining, copy_of
from tapeway.inspection import asking
from tapeway.inspection.drift import Drift, drift
from tapeway.inspection.exchange import ReadableExchange, answers_part
from tapeway.inspection.pairing import compare_items
from tapeway.inspection.reading import MOST_READ
from tapeway.inspection.timeline import timeline
from tapeway.providers.api_call import describe_call
from tapeway.providers.usage import token_usage


async def get_live(context: HandlerContext, call: PlainCall) -> LiveReadiness:
    """Whether an interaction can be asked again, with which key, and at which cost."""
    item = await _exchange(context, call)
    return _readiness(context, item.request, _why_not(context, item), item.usage or {})


def _readiness(
    context: HandlerContext,
    request: Request,
    reason: AdminError | None,
    usage: Mapping[str, Json],
) -> LiveReadiness:
    made = describe_call(request.route, request)
    key = asking.credential(request, os.environ, context.broker.routes)
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    price = None
    if made is not None and made.model is not None:
        price = context.broker.prices.find(made.provider, made.model)
    usd = None
    if price is not None and isinstance(prompt, int) and isinstance(completion, int):
        usd = round(price.of(prompt, completion), 9)
    return LiveReadiness(
        possible=reason is None,
        reason=None if reason is None else reason.message,
        method=request.method,
        route=request.route,
        path=request.target,
        credential=None if key is None else key[0],
        changes=asking.changes_something(request, made),
        usd=usd,
        prompt_tokens=prompt if isinstance(prompt, int) else None,
        completion_tokens=completion if isinstance(completion, int) else None,
    )


async def get_record(context: HandlerContext, call: PlainCall) -> LiveReadiness:
    """Whether a missed request can be asked for and recorded, and with which key."""
    missed = _missed(context, call)
    return _readiness(context, missed.request, _why_not_recorded(context, missed), {})


async def record_missed(context: HandlerContext, call: PlainCall) -> RecordedMiss:
    """Ask the service for a missed request, as in mode auto for this request alone."""
    missed, broker = _missed(context, call), context.broker
    name = the_entry(context, call.request.match_info["id"]).cassette
    if (reason := _why_not_recorded(context, missed)) is not None:
        raise copy_of(reason)
    sent = asking.sent_again(missed.request, broker.routes, os.environ)
    plan = await broker.decide(name, Incoming(replace(sent, credentials=()), mode="auto"))
    if isinstance(plan, Replay):
        return RecordedMiss(cassette=name, index=plan.interaction.index, status=None, note=None)
    if isinstance(plan, Miss):
        raise _refusal(plan.message)
    answer = await broker.recorder.perform(plan)
    return RecordedMiss(
        cassette=name, index=answer.index, status=answer.response.status, note=answer.note
    )


def _missed(context: HandlerContext, call: PlainCall) -> MissedRequest:
    """What missed, as the journal keeps it. Raises AdminError (404, 409)."""
    entry = the_entry(context, call.request.match_info["id"])
    if entry.outcome != "miss":
        raise _refusal("the request did not miss")
    kept = context.journal.kept.get(entry.id)
    if kept is None or kept.missed is None:
        raise AdminError(
            "the journal no longer keeps the request: send it again", status=404, code="not_kept"
        )
    return kept.missed


def _why_not_recorded(context: HandlerContext, missed: MissedRequest) -> AdminError | None:
    request, routes = missed.request, context.broker.routes
    if not missed.is_whole or request.file is not None:
        return _refusal("its body is too large to be kept and sent from here: use the command")
    if reason := asking.not_sendable(request, routes):
        return _refusal(f"it cannot be sent from here: {reason}")
    if missing := asking.missing_credential(request, os.environ, routes):
        return AdminError(missing, status=409, code="no_credential")
    return None


async def ask_live(context: HandlerContext, call: PlainCall) -> web.Response:
    """Ask the service once what is recorded, and show both answers; nothing is stored."""
    item = await _exchange(context, call)
    if (reason := _why_not(context, item)) is not None:
        raise copy_of(reason)
    if context.broker.draining:
        raise Draining("tapeway is stopping and asks nothing more")
    broker = context.broker
    sent, answered = await asking.ask(
        broker.recorder.responder, item, broker.routes, os.environ, MOST_READ
    )
    rules = await rules_in_force(context, call.cassette)
    live = await asyncio.to_thread(_as_recorded, context, item, sent, answered)
    shown = [await ReadableExchange.of(recording) for recording in (item, live)]
    return json_response(
        await asyncio.to_thread(_document, call.cassette, (item, shown[0]), (live, shown[1]), rules)
    )


async def _exchange(context: HandlerContext, call: PlainCall) -> Interaction:
    """The recording, with a route. Raises AdminError (404, 409)."""
    item = assign_route(
        await the_interaction(context, call.cassette, call.index), context.broker.routes
    )
    if not isinstance(item, Interaction):
        raise _refusal("an interaction of another kind than HTTP cannot be asked again")
    return item


def _why_not(context: HandlerContext, item: Interaction) -> AdminError | None:
    call = describe_call(item.request.route, item.request)
    if item.request.file is not None:
        return _refusal("its request has a large body, which is not sent from here")
    if reason := asking.not_asked(item, call, context.broker.routes, set()):
        return _refusal(f"it is not asked again: {reason}")
    if missing := asking.missing_credential(item.request, os.environ, context.broker.routes):
        return AdminError(missing, status=409, code="no_credential")
    return None


def _refusal(message: str) -> AdminError:
    return AdminError(message, status=409, code="not_asked")


def _as_recorded(
    context: HandlerContext, item: Interaction, sent: Request, answered: Response
) -> Interaction:
    """The live answer as it would be stored: decoded, and without secrets."""
    redactor = context.broker.redaction.redactor("", sent)
    response = redactor.response(readable_response(answered, sent.method))
    call = describe_call(item.request.route, item.request)
    usage = None if call is None else token_usage(call, response)
    return replace(
        item,
        response=response,
        latency_ms=answered.latency_ms,
        usage=None if usage is None else usage.fields(),
    )


def _document(
    name: str,
    recorded: tuple[Interaction, ReadableExchange],
    live: tuple[Interaction, ReadableExchange],
    rules: Rules,
) -> bytes:
    pair = compare_items(recorded[0], live[0], rules, headers=False)
    drifts: list[Drift] = []
    if recorded[0].response.file is None:
        drifts = [*drift(recorded[0].response, live[0].response)]
    return dump(
        {
            "recorded": _side(*recorded),
            "live": _side(*live),
            "state": pair.state,
            "drift": [asdict(difference) for difference in drifts],
            # What stores the live answer in the place of the recorded one.
            "document": interaction_document(name, live[0]),
            **placed_pair(pair),
        }
    )


def _side(item: Interaction, shown: ReadableExchange) -> Json:
    return {
        "response": shown.response,
        "answers": answers_part(item),
        "timeline": timeline(item),
        "usage": None if item.usage is None else dict(item.usage),
        "latency_ms": item.latency_ms,
    }
