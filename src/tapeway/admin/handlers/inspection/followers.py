"""The recordings under way, and the part of each that a follower has seen.

Nothing is prepared for a follower: a follower looks a few times a second at the recorder.
"""

import asyncio
import re
from typing import Self

from tapeway.admin.models.inspection import RecordingEvent, RecordingUnderWay
from tapeway.core.cassette.plan import Answer
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Response
from tapeway.engine.broker import Broker
from tapeway.engine.recording.call import RunningCall
from tapeway.errors import TapewayError
from tapeway.inspection.exchange import answer_text
from tapeway.inspection.reading import HEAD

_MOST_LISTED = 1000
_MOST_CHUNKS = 5000
_KEY_BLOCK = "-----BEGIN"
_LAST_WORD = re.compile(r"\S*\Z")
_NUMBER = re.compile(r"[0-9]{1,15}")


def under_way(broker: Broker) -> list[RecordingUnderWay]:
    """The live calls that are asked or recorded now, at most 1,000."""
    calls = list(broker.recorder.under_way.items())[:_MOST_LISTED]
    return [_shown(str(number), call) for number, call in calls]


class Follower:
    """How far one follower has seen a recording, which it holds also after the end."""

    def __init__(self, broker: Broker, id: str, call: RunningCall) -> None:
        self._broker = broker
        self._id = id
        self._call = call
        self._state = ""
        self._bytes = -1
        self._chunks = 0
        self._text = ""
        self._cut = False

    @classmethod
    def of(cls, broker: Broker, id: str) -> "Self | None":
        """A follower of the recording with this id; None if no such recording is under way."""
        if _NUMBER.fullmatch(id) is None:
            return None
        call = broker.recorder.under_way.get(int(id))
        return None if call is None else cls(broker, id, call)

    @property
    def is_at_the_end(self) -> bool:
        """Whether nothing more will be said of it."""
        return self._call.result is not None or self._broker.draining

    async def news(self, *, is_last: bool) -> bytes | None:
        """An event with what is new, None for nothing."""
        shown = _shown(self._id, self._call)
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
        """The text beyond the shown text, or the whole text where a shown part was replaced."""
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
        """The text without the last word: a secret may begin there."""
        response = self._call.redacted(part)
        text = answer_text(Interaction(0, self._call.live_call.redacted, response))
        text = _LAST_WORD.sub("", text)
        return text.partition(_KEY_BLOCK)[0]


def _shown(id: str, call: RunningCall) -> RecordingUnderWay:
    request, buffer, result = call.live_call.redacted, call.buffer, call.result
    now = asyncio.get_running_loop().time()
    return RecordingUnderWay(
        id=id,
        cassette=call.live_call.cassette.name,
        route=request.route,
        method=request.method,
        path=request.target,
        elapsed_ms=0.0 if call.began is None else round((now - call.began) * 1000, 3),
        state=call.state,
        status=None if buffer is None else buffer.head.status,
        bytes=0 if buffer is None else buffer.size,
        chunks=0 if buffer is None else buffer.count,
        index=result.index if isinstance(result, Answer) else None,
        message=result.message if isinstance(result, TapewayError) else result and result.note,
    )
