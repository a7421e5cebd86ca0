"""The LLM calls of a cassette as conversations: messages, and turns."""

import asyncio

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import read_cassette, refuse_large, version_of
from tapeway.admin.models.inspection import TurnQuery
from tapeway.admin.models.interactions import MessageQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.admin.responses import json_response
from tapeway.conversations.transcript import read_conversations
from tapeway.cooperative import free_in_steps
from tapeway.core.model.interaction import Interaction
from tapeway.inspection.conversation import Conversations, WantedMessages


async def list_messages(
    context: HandlerContext, call: OperationCall[MessageQuery, Nothing]
) -> web.Response:
    """The cassette's LLM calls as conversations, each message once."""
    query = call.query
    conversations = await _conversations(context, call.cassette)
    wanted = WantedMessages(query.conversation, query.first, query.last, query.text or "")
    return json_response(
        await asyncio.to_thread(conversations.messages, wanted, query.after, query.limit)
    )


async def list_turns(
    context: HandlerContext, call: OperationCall[TurnQuery, Nothing]
) -> web.Response:
    """The cassette's LLM calls as turns: tokens, cost, what is new, what a cache could keep."""
    query = call.query
    conversations = await _conversations(context, call.cassette)
    if query.index:
        text = await asyncio.to_thread(conversations.outlines, query.conversation, query.after)
    else:
        text = await asyncio.to_thread(
            conversations.turns, query.conversation, query.after, query.limit
        )
    return json_response(text)


async def _conversations(context: HandlerContext, name: str) -> Conversations:
    """The conversations of a cassette, which is read for the first page of each version."""

    async def read() -> Conversations:
        await refuse_large(context, name)
        stored = await read_cassette(context, name)
        transcript, turns = await read_conversations(stored, context.broker.prices)
        items = [item for item in stored.interactions if isinstance(item, Interaction)]
        conversations = await asyncio.to_thread(Conversations, transcript, turns, items)
        held: list[object] = [*transcript.messages, *turns.turns, *stored.interactions]
        del stored, transcript, turns, items
        await asyncio.to_thread(free_in_steps, held)
        return conversations

    return await context.known.of(Conversations, name, await version_of(context, name), read)
