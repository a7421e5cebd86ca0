"""The LLM calls of a cassette as turns."""

import asyncio

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import read_cassette, refuse_large
from tapeway.admin.models.inspection import TurnQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.admin.responses import json_response
from tapeway.conversations.transcript import read_turns
from tapeway.conversations.turns import CassetteTurns
from tapeway.core.json_text import Json, dump

_MOST_LEFT_OUT = 1000


async def list_turns(
    context: HandlerContext, call: OperationCall[TurnQuery, Nothing]
) -> web.Response:
    """The cassette's LLM calls as turns: tokens, cost, what is new, what a cache could keep."""
    await refuse_large(context, call.cassette)
    stored = await read_cassette(context, call.cassette)
    found = await read_turns(stored, context.broker.prices)
    return json_response(await asyncio.to_thread(_page, found, call.query))


def _page(found: CassetteTurns, query: TurnQuery) -> bytes:
    numbered = [
        (number, each)
        for number, each in enumerate(found.turns)
        if (query.after is None or number > query.after)
        and query.conversation in (None, each.conversation)
    ]
    page = numbered if query.index else numbered[: query.limit]
    rest: dict[str, Json] = {"new": [], "largest_results": []} if query.index else {}
    turns: list[Json] = [{"number": number, **each.document, **rest} for number, each in page]
    left_out: list[Json] = [
        {"interaction": index, "reason": reason}
        for index, reason in found.left_out[:_MOST_LEFT_OUT]
    ]
    return dump(
        {
            "turns": turns,
            "sums": found.sums,
            "largest_results": [each.document for each in found.largest_results],
            "left_out": left_out,
            "next": page[-1][0] if len(numbered) > len(page) else None,
        }
    )
