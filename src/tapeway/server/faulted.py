"""Faults laid over a replayed answer on its way out: pauses, what is put in or left out, the ending."""

import asyncio

from tapeway.core.model.messages import Headers, ResponseHead
from tapeway.core.streams.faults import LaidFault
from tapeway.engine.open_streams import Signal
from tapeway.server.delivery import Outgoing
from tapeway.server.messages import ClientRequest


class FaultEnds(Exception):
    """The fault ends an answer here."""


class FaultyOutgoing(Outgoing):
    """A response being sent, with a fault at its place. A write raises FaultEnds where it ends."""

    def __init__(
        self,
        raw: ClientRequest,
        head: ResponseHead,
        extra: Headers,
        laid: LaidFault,
        *,
        draining: bool,
    ) -> None:
        super().__init__(raw, head, extra, draining=draining)
        self._client = raw
        self._laid = laid
        self._at = -1 if laid.at is None else laid.at
        self._place = 0
        """How many bytes of the recording have come."""
        if laid.then == "reset" and raw.transport is not None:
            # Aborting the connection would discard its write buffer.
            raw.transport.set_write_buffer_limits(high=0)

    async def begin(self) -> None:
        await super().begin()
        if not self._at:
            await self._happen()

    async def send(self, piece: bytes) -> None:
        place, laid = self._place, self._laid
        self._place += len(piece)
        before = max(0, self._at - place)
        if laid.chunk_s and self._place > self._at:
            await pause(self._client, laid.chunk_s)
        if first := piece[:before]:
            await super().send(first)
        if place < self._at <= self._place:
            await self._happen()
        if rest := piece[max(before, self._at + laid.skip - place) :]:
            await super().send(rest)

    async def _happen(self) -> None:
        await pause(self._client, self._laid.wait_s)
        if self._laid.insert:
            await super().send(self._laid.insert)
        if self._laid.then != "on":
            raise FaultEnds


async def pause(raw: ClientRequest, seconds: float) -> None:
    """Wait. Raises ConnectionError if the connection is lost meanwhile."""
    if not seconds:
        return
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wait((raw.connection.lost,))
    except TimeoutError:
        return
    raise ConnectionResetError


async def until_left(raw: ClientRequest, stopping: Signal, seconds: float | None) -> None:
    """Wait until the client has left or tapeway stops, or for so many seconds."""
    left, over = raw.connection.left, asyncio.Event()
    with left.listening(over.set), stopping.listening(over.set):
        try:
            async with asyncio.timeout(seconds or None):
                await over.wait()
        except TimeoutError:
            return
