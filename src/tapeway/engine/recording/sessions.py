"""Receives the messages of a session, which are stored part by part."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

from tapeway.core.model.messages import LARGE_BODY, Response
from tapeway.engine.response_buffer import Arrival, ResponseBuffer
from tapeway.errors import RecordingEdited
from tapeway.ports import LiveAnswer

_PAUSE_S = 0.1
"""After a pause of this length, the messages so far are stored."""
_SAVED_AT_ONCE = 64 * 1024
"""So many bytes of a session are stored before a pause too."""


async def receive_session(
    live: LiveAnswer,
    arrival: Arrival,
    max_body: int,
    save: Callable[[ResponseBuffer, float], Awaitable[int]] | None,
) -> Response:
    """All messages of a connection; `save` stores the messages so far after each pause."""
    buffer, saved, spent, goes_on = arrival.buffer, 0, 0, True

    def add(pieces: Sequence[bytes], at_ms: float) -> bool:
        should_spill, waits = (
            arrival.add(pieces, at_ms),
            buffer.size - sum(map(len, pieces)) > saved,
        )
        # The first piece after what is stored begins the wait for a pause.
        return should_spill or not waits or buffer.size > max(2 * saved, _SAVED_AT_ONCE)

    while goes_on:
        # Each save writes the whole session anew: in total a few times its size.
        may_save = save is not None and spent <= 3 * buffer.size + LARGE_BODY
        waits = may_save and buffer.size > saved
        was_pause = False
        try:
            async with asyncio.timeout(_PAUSE_S) if waits else nullcontext():
                goes_on = await live.receive(max_body, add)
        except TimeoutError:
            was_pause = True
        if (
            goes_on
            and save is not None
            and may_save
            and (was_pause or buffer.size > max(2 * saved, _SAVED_AT_ONCE))
        ):
            try:
                spent += await save(buffer, live.elapsed_ms())
            except RecordingEdited:
                # The relay goes on without the recorder.
                return buffer.finish(live.elapsed_ms(), "open")
            saved = buffer.size
        if buffer.should_spill:
            await buffer.spill()
    return buffer.finish(live.elapsed_ms(), arrival.verdict())
