"""One interaction asked again: whether that is possible, the cost, and the new answer."""

import asyncio
import os
from dataclasses import asdict, replace

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.inspection.comparison import placed_pair, rules_in_force
from tapeway.admin.handlers.inspection.exchange import the_interaction
from tapeway.admin.models.inspection import LiveReadiness
from tapeway.admin.operation import PlainCall
from tapeway.admin.responses import json_response
from tapeway.core.http.content_codings import readable_response
from tapeway.core.http.routing import assign_route
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import Rules
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
    reason = _why_not(context, item)
    made = describe_call(item.request.route, item.request)
    key = asking.credential(item.request, os.environ, context.broker.routes)
    usage = item.usage or {}
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
        method=item.request.method,
        route=item.request.route,
        path=item.request.target,
        credential=None if key is None else key[0],
        usd=usd,
        prompt_tokens=prompt if isinstance(prompt, int) else None,
        completion_tokens=completion if isinstance(completion, int) else None,
    )


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
        await asyncio.to_thread(_document, (item, shown[0]), (live, shown[1]), rules)
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
