"""Recordings under way: listed, and one of them followed while it grows.

Nothing is prepared for a follower: it looks a few times a second at what the recorder has.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.inspection import (
    RecordingEvent,
    RecordingsUnderWay,
    RecordingUnderWay,
)
from tapeway.admin.operation import PlainCall
from tapeway.admin.processes import SingleProcess
from tapeway.core.cassette.plan import Answer
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Response
from tapeway.core.text import escape_surrogates
from tapeway.engine.recorder import LiveCall
from tapeway.errors import AdminError, TapewayError
from tapeway.inspection.exchange import answer_text
from tapeway.inspection.reading import HEAD

LOOK_S = 0.2
"""How often a follower looks."""

MOST_LISTED = 1000
_MOST_CHUNKS = 5000
_KEY_BLOCK = "-----BEGIN"
_LAST_WORD = re.compile(r"\S*\Z")


async def list_recordings(context: HandlerContext, call: PlainCall) -> RecordingsUnderWay:
    """The live calls that are asked or recorded now, at most 1,000."""
    _refuse_several_workers(context)
    under_way = list(context.broker.recorder.under_way.items())[:MOST_LISTED]
    return RecordingsUnderWay(recordings=[_shown(number, each) for number, each in under_way])


async def recording_events(context: HandlerContext, call: PlainCall) -> web.StreamResponse:
    """One of them as server-sent events named `recording`, until it is durable or has failed."""
    _refuse_several_workers(context)
    number = call.request.match_info["number"]
    under_way = context.broker.recorder.under_way
    found = under_way.get(int(number)) if re.fullmatch(r"[0-9]{1,15}", number) else None
    if found is None:
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
            await _send(context, response, int(number), found)
    return response


async def _send(
    context: HandlerContext, response: web.StreamResponse, number: int, call: LiveCall
) -> None:
    follower = Follower(number, call)
    quiet_s = 0.0
    while True:
        is_last = call.result is not None or context.broker.draining
        event = await follower.news(is_last=is_last)
        if event is not None:
            quiet_s = 0.0
            await response.write(b"event: recording\ndata: %b\n\n" % event)
        elif quiet_s >= context.heartbeat_s:
            quiet_s = 0.0
            await response.write(b": heartbeat\n\n")
        if is_last:
            return
        await asyncio.sleep(LOOK_S)
        quiet_s += LOOK_S


class Follower:
    """What one follower of a recording has seen of it."""

    def __init__(self, number: int, call: LiveCall) -> None:
        self._number = number
        self._call = call
        self._state = ""
        self._bytes = -1
        self._chunks = 0
        self._text = ""
        self._cut = False

    async def news(self, *, is_last: bool) -> bytes | None:
        """An event with what is new, None for nothing."""
        shown = _shown(self._number, self._call)
        if not is_last and (shown.state, shown.bytes) == (self._state, self._bytes):
            return None
        self._state, self._bytes = shown.state, shown.bytes
        buffer = self._call.buffer
        times = [] if buffer is None else buffer.times(self._chunks, _MOST_CHUNKS)
        self._chunks += len(times)
        text, reset = await self._news_of_text()
        event = RecordingEvent(
            **shown.model_dump(),
            new_chunks=[[at_ms, float(length)] for at_ms, length in times],
            text=text,
            reset=reset,
            cut=self._cut,
        )
        return event.model_dump_json().encode()

    async def _news_of_text(self) -> tuple[str | None, bool]:
        """The text beyond what was shown, or all of it where something was replaced in that."""
        text = await self._text_now()
        if text is None or text == self._text:
            return None, False
        before, self._text = self._text, text
        if before and text.startswith(before):
            return text[len(before) :], False
        return text, True

    async def _text_now(self) -> str | None:
        call = self._call
        if isinstance(call.result, Answer) and call.result.recorded is not None:
            kept = call.result.recorded
            if kept.response.file is not None:
                self._cut = True
                return None
            return await asyncio.to_thread(answer_text, kept)
        if call.result is not None or call.buffer is None:
            return None
        part = call.buffer.part()
        if part is None or part.size > HEAD:
            self._cut = True
            return None
        return await asyncio.to_thread(self._settled_text, part)

    def _settled_text(self, part: Response) -> str:
        """The text without its last word, which may be the beginning of a secret."""
        response = self._call.redacted(part)
        text = answer_text(Interaction(0, self._call.ask.redacted, response))
        text = _LAST_WORD.sub("", text)
        return text.partition(_KEY_BLOCK)[0]


def _shown(number: int, call: LiveCall) -> RecordingUnderWay:
    request, buffer, result = call.ask.redacted, call.buffer, call.result
    now = asyncio.get_running_loop().time()
    return RecordingUnderWay(
        id=str(number),
        cassette=call.ask.cassette.name,
        route=request.route,
        method=escape_surrogates(request.method),
        path=escape_surrogates(request.target),
        elapsed_ms=0.0 if call.began is None else round((now - call.began) * 1000, 3),
        state=call.state,
        status=None if buffer is None else buffer.head.status,
        bytes=0 if buffer is None else buffer.size,
        chunks=0 if buffer is None else buffer.count,
        index=result.index if isinstance(result, Answer) else None,
        message=next(_messages(result), None),
    )


def _messages(result: Answer | TapewayError | None) -> Iterator[str]:
    if isinstance(result, TapewayError):
        yield escape_surrogates(result.message)
    elif result is not None and result.note is not None:
        yield escape_surrogates(result.note)


def _refuse_several_workers(context: HandlerContext) -> None:
    if not isinstance(context.processes, SingleProcess):
        raise AdminError(
            "several workers record, and none of them shows what is under way: use --workers 1",
            status=409,
            code="several_workers",
        )
