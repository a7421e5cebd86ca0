"""Receives streams, also if a stream turns out to stay open."""

from collections.abc import Awaitable, Callable, Sequence

from tapeway.core.cassette.plan import LiveCall
from tapeway.core.model.messages import Response
from tapeway.core.streams.open_streams import may_stay_open
from tapeway.engine.open_streams import OpenStream, OpenStreams, PausingLines, RequestsBeside
from tapeway.engine.response_buffer import Arrival, ResponseReader
from tapeway.errors import UpstreamError
from tapeway.ports import LiveAnswer


async def receive_more(
    live: LiveAnswer, arrival: Arrival, lines: PausingLines | None, max_body: int
) -> bool:
    """Receive once; whether the answer goes on. False too once lines pause: the stream stays open."""
    if lines is None or not lines.may_pause:
        return await live.receive(max_body, arrival.add)

    def add(pieces: Sequence[bytes], at_ms: float) -> bool:
        lines.add(pieces)
        return arrival.add(pieces, at_ms)

    goes_on = True
    async with lines.until_pause():
        goes_on = await live.receive(max_body, add)
    return goes_on and not lines.has_paused


async def receive_stream(
    live: LiveAnswer,
    arrival: Arrival,
    beside: RequestsBeside,
    live_call: LiveCall,
    streams: OpenStreams,
    reader: ResponseReader | None,
    opened: Callable[[], Awaitable[None]],
    max_body: int,
) -> tuple[Response, bool]:
    """The response of a stream that may stay open, and whether the stream stayed open.

    `opened` is awaited before the first event is received.
    """
    buffer, clock_ms = arrival.buffer, live.elapsed_ms
    name, take = live_call.cassette.name, live_call.take.number
    arrival.stay_open()
    stream = OpenStream(name, take, beside, clock_ms)

    def add(pieces: Sequence[bytes], at_ms: float) -> bool:
        stream.add(b"".join(pieces))
        return arrival.add(pieces, at_ms)

    if reader is not None:
        reader.on_leave(stream.close)
    with streams.registered(stream):
        await opened()
        try:
            async with stream.while_open(arrival.hand_out):
                while await live.receive(max_body, add):
                    if buffer.should_spill:
                        await buffer.spill()
        except UpstreamError as exc:
            if exc.code != "upstream_timeout":
                raise
            # An open stream may be silent for long.
            stream.close()
    verdict = arrival.verdict()
    if stream.closed and verdict != "error":
        return buffer.finish(clock_ms(), "open"), True
    # Lines that ended are an answer like any other.
    stays_open = may_stay_open(live_call.request.method, live.head)
    return buffer.finish(clock_ms(), verdict), stays_open
