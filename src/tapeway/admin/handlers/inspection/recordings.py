"""Recordings under way: the list, and a single recording followed while it grows."""

import asyncio
from contextlib import suppress

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.inspection.followers import Follower, under_way
from tapeway.admin.models.inspection import RecordingsUnderWay
from tapeway.admin.operation import PlainCall
from tapeway.errors import AdminError

LOOK_S = 0.2
"""How often a follower looks."""


async def list_recordings(context: HandlerContext, call: PlainCall) -> RecordingsUnderWay:
    """The live calls that are asked or recorded now, at most 1,000."""
    return RecordingsUnderWay(recordings=under_way(context.broker))


async def recording_events(context: HandlerContext, call: PlainCall) -> web.StreamResponse:
    """One recording under way as server-sent events named `recording`, until its end."""
    follower = Follower.of(context.broker, call.request.match_info["number"])
    if follower is None:
        raise AdminError(
            "no such recording is under way: /api/v1/recordings lists them, and the journal has "
            "those that ended",
            status=404,
            code="no_recording",
        )
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(call.request)
    if call.request.method != "HEAD":
        with suppress(ConnectionError):
            await _send(context, response, follower)
    return response


async def _send(context: HandlerContext, response: web.StreamResponse, follower: Follower) -> None:
    """Send news until the last event."""
    quiet_s = 0.0
    while True:
        is_last = follower.is_at_the_end
        if (event := await follower.news(is_last=is_last)) is not None:
            quiet_s = 0.0
            await response.write(b"event: recording\ndata: %b\n\n" % event)
        elif quiet_s >= context.heartbeat_s:
            quiet_s = 0.0
            await response.write(b": heartbeat\n\n")
        if is_last:
            return
        await asyncio.sleep(LOOK_S)
        quiet_s += LOOK_S
