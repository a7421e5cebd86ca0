"""An answer that is written piece by piece, as it comes from an upstream or as it once came."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from aiohttp import web

from tapeway.body_files import stream
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import LARGE_BODY, Headers, Response, ResponseHead
from tapeway.core.streams.pacing import Schedule
from tapeway.server.connection import Connection
from tapeway.server.wire import WireResponse, begin, break_off


class Outgoing:
    """One answer on its way to a client. Every write raises ConnectionError when that has left."""

    def __init__(
        self, raw: web.BaseRequest, head: ResponseHead, marks: Headers, *, draining: bool
    ) -> None:
        sized = raw.version >= (1, 1) or head.length is not None
        self._raw = raw
        self._stays = bool(raw.keep_alive) and not draining and sized
        self._delivery = begin(
            head, marks, method=raw.method, version=raw.version, keep_alive=self._stays
        )

    async def begin(self) -> None:
        """Write the head."""
        await self._raw.writer.write(self._delivery.head)

    async def send(self, piece: bytes) -> None:
        """Write the next piece of the body, as an HTTP chunk where there are chunks."""
        await self._raw.writer.write(self._delivery.piece(piece))

    def end(self) -> WireResponse:
        """What is left to be written."""
        return WireResponse((self._delivery.last,), keep_alive=self._stays)


class Playback:
    """A recorded answer whose pieces leave when they are due, and which may end badly."""

    def __init__(self, raw: web.BaseRequest, interaction: Interaction, schedule: Schedule) -> None:
        self._raw = raw
        self._response = interaction.response
        self._schedule = schedule
        self._fails = interaction.failure is not None
        self._started = asyncio.get_running_loop().time()

    @property
    def head(self) -> ResponseHead:
        """The head with the length that frames its body; one that fails announces more than comes."""
        head, size = self._response.head, _size(self._response)
        if head.framing != "length" and (self._fails or self._raw.version >= (1, 1)):
            return head
        return replace(head, length=max(head.length or 0, size + 1) if self._fails else size)

    async def play(self, outgoing: Outgoing) -> None:
        """Write it all, the head now. Raises ConnectionError when the client leaves."""
        if self._fails and (transport := self._raw.transport) is not None:
            # What is still to be written when a connection is aborted would be lost.
            transport.set_write_buffer_limits(high=0)
        await outgoing.begin()
        async with aclosing(_timed(self._response)) as pieces:
            async for at_ms, piece in pieces:
                await self.until(self._schedule.due_s(at_ms))
                await outgoing.send(piece)
        await self._raw.writer.drain()
        await self.until(self._schedule.end_s)

    async def until(self, due_s: float) -> None:
        """Wait for that time. Raises ConnectionError when the connection is lost.

        A client that only says that it sends no more may still be reading, and is waited for.
        """
        left = self._started + due_s - asyncio.get_running_loop().time()
        if left <= 0:
            return
        connection = cast(Connection, self._raw.protocol)
        try:
            async with asyncio.timeout(left):
                await connection.lost.wait()
        except TimeoutError:
            return
        raise ConnectionResetError


def abort(raw: web.BaseRequest) -> WireResponse:
    """Break the client's connection: a clean end would pass a part of an answer for a whole one."""
    break_off(raw)
    return WireResponse((), keep_alive=False)


def _size(response: Response) -> int:
    if response.file is not None:
        return response.file.size
    return sum(len(chunk.data) for chunk in response.chunks)


async def _timed(response: Response) -> AsyncGenerator[tuple[float, bytes]]:
    """Each piece of a body with the time it came; one too large for memory in several."""
    if response.file is None:
        for chunk in response.chunks:
            yield chunk.at_ms, chunk.data
        return
    cuts = ((at_ms, length) for at_ms, length in response.cuts if length)
    at_ms, left = next(cuts)
    waiting = b""
    async with aclosing(stream(response.file)) as source:
        async for read in source:
            rest = memoryview(read)
            while rest:
                waiting += rest[:left]
                rest, left = rest[left:], left - len(rest[:left])
                if not left or len(waiting) > 2 * LARGE_BODY:
                    yield at_ms, waiting
                    waiting = b""
                if not left:
                    at_ms, left = next(cuts, (at_ms, 0))
