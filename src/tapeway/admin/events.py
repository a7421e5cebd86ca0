"""The journal as it grows, as server-sent events."""

import asyncio
from contextlib import suppress

from aiohttp import web

from tapeway.admin.console import Console
from tapeway.admin.journal_entries import entered
from tapeway.admin.route import Plain
from tapeway.engine.journal import Feed

_OPENING = b": what is journalled from now on\n\n"
_HEARTBEAT = b": still here\n\n"


async def events(console: Console, call: Plain) -> web.StreamResponse:
    """The journal live, as server-sent events named `request`; it ends when tapeway stops."""
    # Proxies in between must not hold events back.
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    with console.journal.follow() as feed:
        await response.prepare(call.request)
        if call.request.method != "HEAD":
            # A follower leaves when it likes.
            with suppress(ConnectionError):
                await _tell(response, feed, console.heartbeat_s)
    return response


async def _tell(response: web.StreamResponse, feed: Feed, heartbeat_s: float) -> None:
    piece: bytes | None = _OPENING
    while piece is not None:
        await response.write(piece)
        piece = await _next(feed, heartbeat_s)


async def _next(feed: Feed, heartbeat_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(heartbeat_s):
            entry = await feed.get()
    except TimeoutError:
        return _HEARTBEAT
    if entry is None:
        return None
    return b"event: request\ndata: %b\n\n" % entered(entry).model_dump_json().encode()
