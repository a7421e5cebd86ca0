"""Responses sent piece by piece: a live stream, a replay at the recorded pace, or a body file."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import ClassVar

from tapeway.body_files import (
    KIB,
    MIB,
    body_pieces,
    in_threads,
    stream_body,
    with_body_in_memory,
)
from tapeway.core.http.content_codings import content_coding
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    LARGE_BODY,
    BodyFile,
    Headers,
    Response,
    ResponseHead,
)
from tapeway.core.streams.open_streams import Gate, gates
from tapeway.core.streams.pacing import Schedule
from tapeway.core.streams.renamed_calls import RenamedBody
from tapeway.engine.open_streams import RouteRequests, Signal
from tapeway.errors import StoreError
from tapeway.server.answers import chunks, frame, length_of
from tapeway.server.messages import ClientRequest, WireResponse, abort

PATIENCE_S = 5.0
"""How long an event of a replayed stream waits for requests that may never come."""

_ALL_PIECES = 8 * MIB
"""How many bytes of all body files under way are in memory together."""
_MOST_PIECE, _LEAST_PIECE = 512 * KIB, 16 * KIB


class Outgoing:
    """One response being sent. Every write raises ConnectionError if the client has disconnected."""

    def __init__(
        self, raw: ClientRequest, head: ResponseHead, extra: Headers, *, draining: bool
    ) -> None:
        sized = raw.version >= (1, 1) or head.length is not None
        self.begun = False
        """Whether the client may have had the head."""
        self.sent = 0
        """Bytes of the body that were written."""
        self._raw = raw
        self._keep_alive = bool(raw.keep_alive) and not draining and sized
        self._frame(head, extra)

    def _frame(self, head: ResponseHead, extra: Headers) -> None:
        self._framed = frame(
            *(head, extra, head.length),
            method=self._raw.method,
            version=self._raw.version,
            keep_alive=self._keep_alive,
        )

    async def begin(self) -> None:
        """Write the head."""
        self.begun = True
        await self._raw.send(self._framed.text)

    async def send(self, piece: bytes) -> None:
        """Write the next piece of the body, as an HTTP chunk if the response is chunked."""
        await self._raw.send(self._framed.piece(piece))
        self.sent += len(piece)

    async def complete(self) -> None:
        """Write the held rest of the body, after its last piece."""

    def end(self) -> WireResponse:
        """The end of the response, still to be written."""
        return WireResponse((self._framed.last,), keep_alive=self._keep_alive)


class Playback:
    """Replays a recorded response at its pace, up to a recorded failure if any."""

    def __init__(self, raw: ClientRequest, interaction: Interaction, schedule: Schedule) -> None:
        self._raw = raw
        self._response = interaction.response
        self._schedule = schedule
        self._fails = interaction.failure is not None
        self._started = asyncio.get_running_loop().time()
        self.head_s, self.end_s = schedule.head_s, schedule.end_s
        """When the head is due, and the end."""

    @property
    def head(self) -> ResponseHead:
        """The head with a Content-Length; a body that fails gets a length beyond the end."""
        head, size = self._response.head, self._response.size
        if head.framing != "length" and (self._fails or self._raw.version >= (1, 1)):
            return head
        return replace(head, length=max(head.length or 0, size + 1) if self._fails else size)

    async def play(self, outgoing: Outgoing) -> None:
        """Write the response. Raises ConnectionError if the client disconnects."""
        if self._fails and (transport := self._raw.transport) is not None:
            # Aborting the connection would discard its write buffer.
            transport.set_write_buffer_limits(high=0)
        await outgoing.begin()
        async with aclosing(_timed(self._response)) as pieces:
            async for at_ms, piece in pieces:
                await self.until(self._schedule.due_s(at_ms))
                await outgoing.send(piece)
        await self._raw.send(b"")
        await self.until(self.end_s)

    async def until(self, due_s: float) -> None:
        """Wait until a time after the start. Raises ConnectionError if the connection is lost.

        A client that closed only its sending side may still be reading.
        """
        left = self._started + due_s - asyncio.get_running_loop().time()
        if left <= 0:
            return
        try:
            async with asyncio.timeout(left):
                await asyncio.wait((self._raw.connection.lost,))
        except TimeoutError:
            return
        raise ConnectionResetError


class OpenPlayback(Playback):
    """Replays a stream whose events wait for requests. A stream recorded open stays open.

    An event waits until as many requests of its route have come as in the recorded take. The wait
    for requests that came before the stream itself is limited, as fewer tests may run than were
    recorded. The wait for any request is limited where further processes answer, or where the
    stream ended by itself: a client may make the next request only after the end.
    """

    def __init__(
        self,
        raw: ClientRequest,
        interaction: Interaction,
        schedule: Schedule,
        requests: RouteRequests,
        stopping: Signal,
        *,
        alone: bool,
    ) -> None:
        super().__init__(raw, interaction, schedule)
        self._requests = requests
        self._stopping = stopping
        self._alone = alone
        self._began_with = requests.count
        self._gates: list[Gate] = []
        self._place = 0

    async def play(self, outgoing: Outgoing) -> None:
        """Write the response until it ends, or tapeway stops. Raises ConnectionError."""
        response = self._response
        whole = response if response.file is None else await with_body_in_memory(response)
        self._gates = [*gates(whole)]
        named = self._named(whole)
        await outgoing.begin()
        async with aclosing(_timed(response)) as pieces:
            async for at_ms, piece in pieces:
                await self.until(self._schedule.due_s(at_ms))
                rest = piece
                while rest and not self._stopping.is_set:
                    part, rest = rest[: self._until_gate()], rest[self._until_gate() :]
                    if part:
                        await outgoing.send(named.piece(part) if named else part)
                        self._place += len(part)
                    elif self._gates:
                        await self._pass(self._gates[0])
        await outgoing.complete()
        while self._gates and not self._stopping.is_set:
            await self._pass(self._gates[0])
        if self._response.verdict == "open":
            await self._wait_for(math.inf)

    def _named(self, whole: Response) -> RenamedBody | None:
        """The answers on a standing stream, which call the calls of this take by their names."""
        if self._raw.method != "GET" or content_coding(whole.headers):
            return None
        return RenamedBody(whole, self._requests.names)

    def _until_gate(self) -> int:
        """How many bytes there are to the next gate."""
        return self._gates[0].place - self._place if self._gates else self._response.size

    async def _pass(self, gate: Gate) -> None:
        recorded_with = self._response.after_requests[0]

        def beside() -> bool:
            """Whether as many requests have come since the start as in the recorded take."""
            count = self._requests.count - self._began_with
            return count >= gate.requests - recorded_with

        requests = self._requests
        while requests.count < gate.requests:
            stays = self._response.verdict == "open"
            patience_s = None if stays and self._alone and not beside() else PATIENCE_S
            next_count = requests.count + 1
            if not await self._wait_for(next_count, patience_s):
                break
        del self._gates[0]

    async def _wait_for(self, count: float, patience_s: float | None = None) -> bool:
        """Wait for `count` requests, or until tapeway stops; False after `patience_s` seconds.

        Raises ConnectionError once the client has left.
        """
        requests, left, stopping = self._requests, self._raw.connection.left, self._stopping
        woken = asyncio.Event()
        with (
            requests.listening(woken.set),
            left.listening(woken.set),
            stopping.listening(woken.set),
        ):
            try:
                async with asyncio.timeout(patience_s):
                    while requests.count < count and not (left.is_set or stopping.is_set):
                        woken.clear()
                        await woken.wait()
            except TimeoutError:
                return False
        if left.is_set:
            raise ConnectionResetError
        return not stopping.is_set


@asynccontextmanager
async def while_connected(raw: ClientRequest) -> AsyncGenerator[None]:
    """Leave the block by ConnectionError once the client has left."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as until:
            with raw.connection.left.listening(lambda: until.reschedule(loop.time())):
                yield
    except TimeoutError:
        if not until.expired():
            raise
        raise ConnectionResetError from None


async def _timed(response: Response) -> AsyncGenerator[tuple[float, bytes]]:
    """Each chunk of a body with its time; chunks too large for memory in several pieces."""
    if response.file is None:
        for at_ms, piece in zip(response.arrivals().times, response.pieces(), strict=True):
            yield at_ms, piece
        return
    arrivals = iter(response.arrivals())
    at_ms, left = next(arrivals)
    pending = b""
    async with aclosing(stream_body(response.file)) as source:
        async for read in source:
            rest = memoryview(read)
            while rest:
                pending += rest[:left]
                rest, left = rest[left:], left - len(rest[:left])
                if not left or len(pending) > 2 * LARGE_BODY:
                    yield at_ms, pending
                    pending = b""
                if not left:
                    at_ms, left = next(arrivals, (at_ms, 0))


class LargeAnswer(WireResponse):
    """A response with a body file, read as fast as the client reads, aborted if the file is broken."""

    under_way: ClassVar[int] = 0

    def __init__(
        self,
        raw: ClientRequest,
        response: Response,
        file: BodyFile,
        extra: Headers,
        broken: Callable[[StoreError], None],
        *,
        keep_alive: bool,
    ) -> None:
        """`broken` is told of an error for which the response is aborted."""
        super().__init__((), keep_alive=keep_alive)
        self._file = file
        self._broken = broken
        self._lengths = response.arrivals().lengths
        self._head = frame(
            *(response.head, extra, length_of(response, raw.version)),
            method=raw.method,
            version=raw.version,
            keep_alive=keep_alive,
        )

    async def write_to(self, request: ClientRequest) -> None:
        if self._head.framing == "none":
            await request.send(self._head.text)
            return
        LargeAnswer.under_way += 1
        try:
            async with aclosing(in_threads(self._frames())) as frames:
                async for piece in frames:
                    await request.send(piece)
        except StoreError as exc:
            self._broken(exc)
            self._may_keep_alive = False
            abort(request)
        finally:
            LargeAnswer.under_way -= 1

    @classmethod
    def _piece_size(cls) -> int:
        """The more answers share the memory for pieces, the less each reads at once."""
        return max(_LEAST_PIECE, min(_MOST_PIECE, _ALL_PIECES // max(1, cls.under_way)))

    def _frames(self) -> Generator[bytes]:
        # The head goes out with the first piece: a file that cannot be opened sends nothing.
        start = self._head.text
        body = body_pieces(self._file, self._piece_size)
        chunked = self._head.framing == "chunked"
        for chunk in chunks(body, self._lengths) if chunked else body:
            yield start + chunk
            start = b""
