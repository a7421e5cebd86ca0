"""Recordings under way: the list, and a single recording followed while it grows."""

import asyncio
from contextlib import suppress
from itertools import count

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.inspection.followers import RecordingNews
from tapeway.admin.models.inspection import RecordingsUnderWay
from tapeway.admin.operation import PlainCall
from tapeway.errors import AdminError

LOOK_S = 0.2
"""How often a follower looks."""

_followers = count(1)


async def list_recordings(context: HandlerContext, call: PlainCall) -> RecordingsUnderWay:
    """The live calls that are asked or recorded now, at most 1,000."""
    return RecordingsUnderWay(recordings=await context.processes.recordings())


async def recording_events(context: HandlerContext, call: PlainCall) -> web.StreamResponse:
    """One recording under way as server-sent events named `recording`, until its end."""
    id, follower = call.request.match_info["number"], str(next(_followers))
    news = await context.processes.recording_news(id, follower)
    if news is None:
        raise AdminError(
            "no such recording is under way: /api/v1/recordings lists them, and the journal has "
            "those that ended",
            status=404,
            code="no_recording",
        )
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    try:
        await response.prepare(call.request)
        if call.request.method != "HEAD":
            with suppress(ConnectionError):
                await _send(context, response, id, follower, news)
    finally:
        context.processes.leave_recording(id, follower)
    return response


async def _send(
    context: HandlerContext,
    response: web.StreamResponse,
    id: str,
    follower: str,
    news: RecordingNews | None,
) -> None:
    """Send news until the last event, or until the recording process is gone."""
    quiet_s = 0.0
    while news is not None:
        if news.event is not None:
            quiet_s = 0.0
            await response.write(b"event: recording\ndata: %b\n\n" % news.event)
        elif quiet_s >= context.heartbeat_s:
            quiet_s = 0.0
            await response.write(b": heartbeat\n\n")
        if news.is_last:
            return
        await asyncio.sleep(LOOK_S)
        quiet_s += LOOK_S
        news = await context.processes.recording_news(id, follower)
