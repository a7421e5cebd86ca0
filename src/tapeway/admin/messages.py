"""The recorded calls of LLMs as what was said."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from tapeway.admin.cassettes import read_cassette, refuse_large
from tapeway.admin.console import Console
from tapeway.admin.payloads import MessageQuery, Nothing
from tapeway.admin.route import Call
from tapeway.conversations.model import ConversationMessage, document
from tapeway.conversations.transcript import LeftOut, read_transcript
from tapeway.core.json_text import Json, dump

_MOST_LEFT_OUT = 1000


async def list_messages(console: Console, call: Call[MessageQuery, Nothing]) -> web.Response:
    """The recorded LLM calls as conversations, each message once."""
    query = call.query
    await refuse_large(console, call.cassette)
    found = await read_transcript(await read_cassette(console, call.cassette))
    later = [
        (number, each)
        for number, each in enumerate(found.messages)
        if (query.after is None or number > query.after)
        and query.conversation in (None, each.conversation)
    ]
    body = await asyncio.to_thread(_page, later, query.limit, found.left_out)
    return web.Response(body=body, content_type="application/json")


def _page(
    later: Sequence[tuple[int, ConversationMessage]], limit: int, left_out: Sequence[LeftOut]
) -> bytes:
    messages: list[Json] = [{"number": at, **document(each)} for at, each in later[:limit]]
    unread: list[Json] = [
        {"interaction": each.interaction, "reason": each.reason}
        for each in left_out[:_MOST_LEFT_OUT]
    ]
    following = later[limit - 1][0] if len(later) > limit else None
    return dump({"messages": messages, "left_out": unread, "next": following})
