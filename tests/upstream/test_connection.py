"""A response is read whole, chunk by chunk, however it comes, and a service is bounded in all it sends."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat
from typing import Literal, cast

import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from tapeway.core.model.messages import LARGE_BODY, Headers
from tapeway.errors import TapewayError
from tapeway.upstream.connection import MAX_HEADS, UpstreamConnection, UpstreamExchange
from tapeway.upstream.faults import translated
from tapeway.upstream.response import UpstreamAnswer
from tests.support.thoroughness import examples

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LENGTH = HEAD + b"Content-Length: 10\r\n\r\n"
CLOSED = HEAD + b"\r\n"
URL_OF_ALL = URL("http://service:80")
End = Literal["stays", "closes", "breaks"]


class Wire(asyncio.Transport):
    """A transport that has no socket below."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed, self.reads, self.written = False, True, 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Held:
    """A connection that one request holds, as aiohttp's connector gives it out."""

    def __init__(self, handler: ResponseHandler) -> None:
        self.handler = handler
        self.is_kept: bool | None = None

    def release(self) -> None:
        self.is_kept = not self.handler.should_close

    def close(self) -> None:
        self.is_kept = False


class Call:
    """A request whose response comes in the segments that a test gives it."""

    def __init__(self, *, bodiless: bool = False, idle_s: float = 60) -> None:
        loop = asyncio.get_running_loop()
        self.wire, self.interim = Wire(), list[Headers]()
        handler = ResponseHandler(loop)
        handler.connection_made(self.wire)
        self.connection = UpstreamConnection(handler, self.wire, idle_s, set())
        self.held = Held(handler)
        self.exchange = UpstreamExchange(
            self.connection,
            cast(Connection, self.held),
            bodiless=bodiless,
            on_interim=self.interim.append,
        )

    async def come(self, *segments: bytes, end: End = "stays") -> None:
        """Have the segments arrive, each in a turn of its own, and then the end."""
        for segment in segments:
            if not self.wire.is_closed:
                self.connection.data_received(segment)
            await turns()
        if end != "stays" or self.wire.is_closed:
            self.connection.connection_lost(ConnectionResetError() if end == "breaks" else None)
        await turns()

    async def answer(self, method: str = "GET") -> UpstreamAnswer:
        try:
            raw = await self.exchange.head()
        except Exception as exc:
            raise translated(exc, URL_OF_ALL) from None
        answer = UpstreamAnswer(self.exchange, raw, URL_OF_ALL, method, lambda: 0.0, 0.0)
        answer.open()
        return answer


async def turns(number: int = 6) -> None:
    """Let whoever is woken come to where the next thing is waited for."""
    for _ in range(number):
        await asyncio.sleep(0)


@dataclass
class Seen:
    """What came of a response."""

    status: int | None = None
    chunks: list[bytes] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    """How many chunks were handed over together, each time."""
    error: str = ""
    ended: bool = False


async def seen_of(
    segments: Sequence[bytes],
    end: End = "stays",
    *,
    most: int = 10_000_000,
    pause_after: int = 0,
    passed_on: bool = False,
) -> tuple[Seen, Call]:
    """What is seen of a response, where its reader pauses once that many chunks have come."""
    call, seen = Call(), Seen()

    def on_chunks(chunks: Sequence[bytes], _at_ms: float) -> bool:
        seen.chunks += chunks
        seen.at_once.append(len(chunks))
        return bool(pause_after) and len(seen.chunks) >= pause_after

    async def read() -> None:
        try:
            answer = await call.answer()
            seen.status = answer.status
            if passed_on:
                async for piece in answer.pieces():
                    seen.chunks.append(piece)
                    await turns(1)
            else:
                while await answer.receive(most, on_chunks):
                    await turns()
            seen.ended = True
        except TapewayError as exc:
            seen.error = exc.code
        finally:
            call.exchange.close()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await call.come(*segments, end=end)
        await turns(20)
        if not reading.done():
            seen.error = "still waiting"
            reading.cancel()
    return seen, call


# However it comes.

PIECES = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=20),
        st.sampled_from([b"data: x\r\n\r\n", b"0\r\n\r\n", b"\r\n", b"5\r\nhello\r\n"]),
    ),
    max_size=8,
)
CUTS = st.lists(st.integers(1, 400), max_size=12)


def chunk(data: bytes, line: bytes = b"%x") -> bytes:
    return b"%b\r\n%b\r\n" % (line % len(data), data)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The data in segments; none is empty."""
    ends = sorted({place % len(data) for place in at} - {0})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@settings(max_examples=examples(300))
@given(PIECES, st.sampled_from([b"%x", b"0%X", b"%x;a=b", b"%x "]), CUTS, st.integers(0, 4))
def test_chunks_are_those_of_the_service_in_whatever_segments_they_come(
    pieces: list[bytes], line: bytes, cuts: list[int], pause_after: int
) -> None:
    data = CHUNKED + b"".join(chunk(piece, line) for piece in pieces) + b"0\r\n\r\n"
    seen, call = asyncio.run(seen_of(cut(data, cuts), pause_after=pause_after))

    assert (seen.chunks, seen.error, seen.ended) == (pieces, "", True)
    assert call.held.is_kept


@settings(max_examples=examples(100))
@given(PIECES, CUTS, st.sampled_from(["chunked", "length", "close"]), st.booleans())
def test_every_byte_comes_in_every_framing(
    pieces: list[bytes], cuts: list[int], framing: str, passed_on: bool
) -> None:
    body = b"".join(pieces)
    data = {
        "chunked": CHUNKED + b"".join(map(chunk, pieces)) + b"0\r\n\r\n",
        "length": HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        "close": CLOSED + body,
    }[framing]
    end: End = "closes" if framing == "close" else "stays"
    seen, call = asyncio.run(seen_of(cut(data, cuts), end, passed_on=passed_on))

    assert (b"".join(seen.chunks), seen.error, seen.ended) == (body, "", True)
    assert call.held.is_kept is (framing != "close")


@settings(max_examples=examples(200))
@given(PIECES, CUTS, st.sampled_from(["closes", "breaks"]), st.data())
def test_what_came_before_a_response_broke_off_is_handed_over(
    pieces: list[bytes], cuts: list[int], end: End, data: st.DataObject
) -> None:
    whole = CHUNKED + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    kept = data.draw(st.integers(len(CHUNKED), len(whole) - 1))
    pause_after = data.draw(st.integers(0, 3))
    seen, call = asyncio.run(seen_of(cut(whole[:kept], cuts), end, pause_after=pause_after))

    assert seen.error == "upstream_truncated"
    assert call.held.is_kept is False
    # Of the chunk in which it broke off, the part that came.
    assert b"".join(seen.chunks) == b"".join(pieces)[: len(b"".join(seen.chunks))]
    ends = [len(CHUNKED)]
    for piece in pieces:
        ends.append(ends[-1] + len(chunk(piece)))
    whole_ones = sum(each <= kept for each in ends[1:])
    assert seen.chunks[:whole_ones] == pieces[:whole_ones]
    begun = kept - ends[whole_ones] - len(b"%x\r\n" % len([*pieces, b""][whole_ones]))
    part = [*pieces, b""][whole_ones][: max(begun, 0)]
    assert seen.chunks[whole_ones:] == ([part] if part else [])


async def test_chunks_that_come_together_are_handed_over_together() -> None:
    segments = [CHUNKED + chunk(b"one"), chunk(b"two") + chunk(b"three") + b"4\r\nfo", b"ur\r\n"]
    seen, _ = await seen_of([*segments, b"0\r\n\r\n"])

    assert seen.chunks == [b"one", b"two", b"three", b"four"]
    assert seen.at_once == [1, 2, 1]


async def test_no_task_is_woken_for_a_segment_that_is_followed() -> None:
    call, came = Call(), list[bytes]()
    await call.come(CHUNKED)
    answer = await call.answer()
    async with asyncio.TaskGroup() as tasks:
        receiving = tasks.create_task(answer.receive(100, lambda chunks, _: came.extend(chunks)))
        await turns()
        for text in (b"one", b"two"):
            call.connection.data_received(chunk(text))
            assert came[-1] == text
        call.connection.data_received(b"0\r\n\r\n")
        assert await receiving is False


async def test_a_chunk_too_large_for_memory_becomes_several_and_others_stay_whole() -> None:
    large = bytes(LARGE_BODY + 1)
    data = CHUNKED + chunk(large) + chunk(b"one")
    segments = cut(data, [*range(200_000, len(data), 200_000)])
    seen, _ = await seen_of([*segments, b"0\r\n\r\n"])

    assert b"".join(seen.chunks) == large + b"one"
    assert seen.chunks[-1] == b"one"
    assert 1 < len(seen.chunks) <= 3
    assert max(map(len, seen.chunks)) <= LARGE_BODY + 256 * 1024


async def test_chunks_beyond_the_limit_are_too_many_where_they_come_in_one_segment() -> None:
    seen, _ = await seen_of([CHUNKED + chunk(b"hello") + chunk(b"world") + b"0\r\n\r\n"], most=7)

    assert (seen.chunks, seen.error) == ([b"hello"], "upstream_too_large")


async def test_a_reader_that_pauses_holds_the_service_back() -> None:
    call, came = Call(), list[bytes]()
    await call.come(CHUNKED + chunk(b"first"))
    answer = await call.answer()

    def on_chunks(chunks: Sequence[bytes], _at_ms: float) -> bool:
        came.extend(chunks)
        return True

    assert await answer.receive(10**8, on_chunks)
    while call.wire.is_reading():
        call.connection.data_received(chunk(bytes(50_000)))
    assert came == [b"first"]

    while await answer.receive(10**8, on_chunks) and len(came) < 3:
        pass
    assert call.wire.is_reading()


async def test_thousands_of_chunks_in_a_segment_are_handed_over_in_several_turns() -> None:
    data = CHUNKED + chunk(b"x") * 40_000 + b"0\r\n\r\n"
    call, at_once, others = Call(), list[int](), 0
    async with asyncio.TaskGroup() as tasks:

        async def read() -> None:
            answer = await call.answer()
            assert not await answer.receive(10**6, lambda chunks, _: at_once.append(len(chunks)))

        reading = tasks.create_task(read())
        await turns()
        call.connection.data_received(data)
        while not reading.done():
            others += 1
            await asyncio.sleep(0)

    assert sum(at_once) == 40_000
    assert max(at_once) <= 1024
    assert others >= 30


async def test_blanks_around_a_value_are_no_part_of_it() -> None:
    call = Call()
    await call.come(HEAD + b"X:  a b \t\r\nY:\r\nTransfer-Encoding: chunked \r\n\r\n0\r\n\r\n")
    answer = await call.answer()

    assert answer.raw_headers == ((b"X", b"a b"), (b"Y", b""), (b"Transfer-Encoding", b"chunked"))
    assert answer.head.framing == "chunked"


# Interim responses.


async def test_interim_responses_are_seen_and_are_not_the_answer() -> None:
    call = Call()
    await call.come(b"HTTP/1.1 100 Continue\r\nTapeway-Hops: a\r\n\r\nHTTP/1.1 103 Early\r\n\r\n")
    await call.come(LENGTH + b"0123456789")

    assert (await call.answer()).status == 200
    assert call.interim == [((b"Tapeway-Hops", b"a"),), ()]


@pytest.mark.parametrize(("count", "error"), [(100, ""), (101, "upstream_protocol")])
@pytest.mark.parametrize("together", [True, False])
async def test_a_hundred_interim_responses_are_the_most(
    count: int, error: str, together: bool
) -> None:
    interim = [b"HTTP/1.1 102 Processing\r\n\r\n"] * count
    seen, call = await seen_of([*([b"".join(interim)] if together else interim), LENGTH, bytes(10)])

    assert (seen.error, call.wire.is_closed) == (error, bool(error))


# Bounds on all that a service sends.

ENDLESS: dict[str, tuple[bytes, bytes, str]] = {
    "empty lines before anything": (b"", b"\r\n", "upstream_header_too_large"),
    "a status line": (b"HTTP/1.1 200 ", b"a", "upstream_header_too_large"),
    "spaces in a status line": (b"HTTP/1.1 200", b" ", "upstream_header_too_large"),
    "the name of a field": (HEAD, b"a", "upstream_header_too_large"),
    "the value of a field": (HEAD + b"X: ", b"a", "upstream_header_too_large"),
    "spaces before a value": (HEAD + b"X:", b" ", "upstream_header_too_large"),
    "spaces behind a value": (HEAD + b"X: a", b" ", "upstream_header_too_large"),
    "lines of a folded field": (HEAD + b"X: a\r\n", b" b\r\n", "upstream_header_too_large"),
    "fields": (HEAD, b"X: y\r\n", "upstream_header_too_large"),
    "interim responses": (b"", b"HTTP/1.1 103 E\r\n\r\n", "upstream_protocol"),
    "large interim responses": (
        *(b"", b"HTTP/1.1 103 E\r\nX: %b\r\n\r\n" % (b"a" * 60_000)),
        "upstream_header_too_large",
    ),
    "zeros in a chunk size": (CHUNKED, b"0", "upstream_protocol"),
    "spaces behind a chunk size": (CHUNKED + b"5", b" ", "upstream_protocol"),
    "a chunk extension": (CHUNKED + b"5;", b"e", "upstream_protocol"),
    "the value of a chunk extension": (CHUNKED + b"5;e=", b"v", "upstream_protocol"),
    "a quoted chunk extension": (CHUNKED + b'5;e="', b"v", "upstream_protocol"),
    "chunk extensions": (CHUNKED + b"5", b";e=v", "upstream_protocol"),
    "an extension of the last chunk": (CHUNKED + b"0;", b"e", "upstream_protocol"),
    "the name of a trailer": (CHUNKED + b"0\r\n", b"a", "upstream_header_too_large"),
    "the value of a trailer": (CHUNKED + b"0\r\nX: ", b"a", "upstream_header_too_large"),
    "spaces before a trailer's value": (CHUNKED + b"0\r\nX:", b" ", "upstream_protocol"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n", "upstream_header_too_large"),
    "chunks that are nearly all extension": (
        *(CHUNKED, b"1;%b\r\nx\r\n" % (b"e" * 60_000)),
        "upstream_protocol",
    ),
}


def endless(first: bytes, more: bytes, size: int) -> Iterator[bytes]:
    return chain([first], repeat(more * (size // len(more) or 1)))


@pytest.mark.parametrize("passed_on", [False, True])
@pytest.mark.parametrize("size", [1000, 256 * 1024])
@pytest.mark.parametrize("name", ENDLESS)
async def test_nothing_but_a_body_may_be_endless(name: str, size: int, passed_on: bool) -> None:
    first, more, code = ENDLESS[name]
    segments, sent = list[bytes](), 0
    for segment in endless(first, more, size):
        segments.append(segment)
        sent += len(segment)
        if sent > MAX_HEADS + 4 * size:
            break
    seen, call = await seen_of(segments, passed_on=passed_on)

    assert seen.error in (code, "upstream_protocol")
    assert call.wire.is_closed
    assert call.exchange.received <= MAX_HEADS + size + len(more)


async def test_a_body_may_be_as_large_as_it_likes_while_nobody_bounds_it() -> None:
    segments = [CLOSED, *[bytes(250_000)] * 200]
    seen, _ = await seen_of(segments, "closes", passed_on=True)

    assert sum(map(len, seen.chunks)) == 50_000_000
    assert seen.ended


async def test_tiny_chunks_with_some_framing_are_no_attack() -> None:
    signature = b"1;chunk-signature=%b\r\nx\r\n" % (b"a" * 30)
    seen, _ = await seen_of([CHUNKED, *[signature * 500] * 100, b"0\r\n\r\n"])

    assert seen.ended
    assert len(seen.chunks) == 50_000


# Silence is measured by what was delivered.

DRIPS: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "empty lines": (b"", b"\r\n"),
    "a status line": (b"HTTP/1.1 200 ", b"a"),
    "a header": (HEAD + b"X: ", b"a"),
    "fields": (HEAD, b"X: y\r\n"),
    "a chunk extension": (CHUNKED + b"5;", b"e"),
    "a chunk size": (CHUNKED, b"0"),
    "a trailer": (CHUNKED + chunk(b"x") + b"0\r\nX: ", b"a"),
}


async def drip(call: Call, first: bytes, drops: Iterator[bytes], until: Callable[[], bool]) -> None:
    """A few bytes every moment."""
    call.connection.data_received(first)
    while not until() and not call.wire.is_closed:
        if drop := next(drops):
            call.connection.data_received(drop)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("passed_on", [False, True])
@pytest.mark.parametrize("name", DRIPS)
async def test_a_service_that_keeps_sending_and_delivers_nothing_is_silent(
    name: str, passed_on: bool
) -> None:
    first, drop = DRIPS[name]
    call, errors = Call(idle_s=0.1), list[str]()

    async def read() -> None:
        try:
            answer = await call.answer()
            if passed_on:
                async for _ in answer.pieces():
                    pass
            else:
                await answer.receive(100, lambda *_: None)
        except TapewayError as exc:
            errors.append(exc.code)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await drip(call, first, repeat(drop), reading.done)

    assert errors == ["upstream_timeout"]
    assert call.wire.is_closed


async def test_a_body_may_come_byte_by_byte_for_longer_than_silence_may_take() -> None:
    call, came = Call(idle_s=0.2), list[bytes]()

    async def read() -> bool:
        answer = await call.answer()
        return await answer.receive(1000, lambda chunks, _: came.extend(chunks))

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        loop = asyncio.get_running_loop()
        started = loop.time()
        await drip(call, CHUNKED, cycle([chunk(b"x")]), lambda: loop.time() > started + 0.5)
        call.connection.data_received(b"0\r\n\r\n")
        assert not await reading

    assert len(came) > 2


async def test_a_reader_that_pauses_is_no_silence_of_the_service() -> None:
    call = Call(idle_s=0.05)
    await call.come(CHUNKED + chunk(b"first") + chunk(b"second"))
    answer = await call.answer()
    assert await answer.receive(100, lambda *_: True)
    await asyncio.sleep(0.15)
    await call.come(chunk(b"third") + b"0\r\n\r\n")

    while await answer.receive(100, lambda *_: True):
        pass
    assert call.exchange.failure is None


async def test_an_upload_may_take_longer_than_silence_may_while_the_service_takes_it() -> None:
    call, errors = Call(idle_s=0.2), list[str]()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield bytes(100_000)

    async def read() -> None:
        try:
            await call.answer()
        except TapewayError as exc:
            errors.append(exc.code)
        call.exchange.close()

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        call.connection.pause_writing()
        call.exchange.upload_by(tasks.create_task(call.exchange.upload(pieces())))
        for number in range(8):
            await asyncio.sleep(0.05)
            assert call.wire.written == (number + 1) * 100_000
            call.connection.resume_writing()
            call.connection.pause_writing()
            await turns()
        assert errors == []

    assert errors == ["upstream_timeout"]


# The end of a connection.


async def test_an_upload_that_goes_on_behind_its_response_uses_the_connection_up() -> None:
    call = Call()

    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(100_000)
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        upload = tasks.create_task(call.exchange.upload(pieces()))
        call.exchange.upload_by(upload)
        await call.come(LENGTH + b"0123456789")

    assert upload.cancelled()
    assert call.held.is_kept is False


@pytest.mark.parametrize("has_begun", [True, False])
async def test_an_upload_that_fails_ends_a_call_whose_response_has_not_begun(
    has_begun: bool,
) -> None:
    call = Call()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"head"
        raise OSError(5, "the file is gone")

    await call.come(*([LENGTH] if has_begun else []))
    await call.exchange.upload(pieces())
    if has_begun:
        await call.come(b"0123456789")
        assert [piece async for piece in (await call.answer()).pieces()] == [b"0123456789"]
    else:
        with pytest.raises(TapewayError, match="reset the connection"):
            await call.answer()


async def test_a_connection_is_given_back_as_the_response_ends_however_slow_its_reader() -> None:
    call = Call()
    await call.come(LENGTH + b"01234", b"56789")
    assert call.held.is_kept
    answer = await call.answer()

    assert [piece async for piece in answer.pieces()] == [b"0123456789"]


@pytest.mark.parametrize("unasked", [b"HTTP/1.1 200 EVIL\r\n\r\n", b"\r\n", b"x"])
async def test_a_connection_on_which_a_service_spoke_unasked_is_closed(unasked: bytes) -> None:
    call = Call()
    await call.come(LENGTH + b"0123456789")
    assert not call.wire.is_closed
    await call.come(unasked)

    assert call.wire.is_closed


async def test_silence_of_an_idle_connection_is_nobodys_concern() -> None:
    call = Call(idle_s=0.02)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(call.exchange.head())
        await turns()
        await call.come(LENGTH + b"0123456789")
        await waiting
    await asyncio.sleep(0.06)

    assert not call.wire.is_closed


async def test_silence_of_the_response_before_is_not_that_of_the_next_one() -> None:
    call = Call(idle_s=0.1)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(call.exchange.head())
        await turns()
        await call.come(LENGTH + b"0123456789")
        await waiting
    again = UpstreamExchange(
        call.connection, cast(Connection, call.held), bodiless=False, on_interim=call.interim.append
    )
    # Nobody waits: the request is still made ready.
    await asyncio.sleep(0.2)

    assert again.failure is None


async def test_what_a_guard_says_of_an_interim_response_ends_the_call() -> None:
    call = Call()

    def refuse(_: Headers) -> None:
        raise TapewayError("leads back", code="upstream_loop")

    again = UpstreamExchange(
        call.connection, cast(Connection, call.held), bodiless=False, on_interim=refuse
    )
    call.connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\n")
    with pytest.raises(TapewayError, match="leads back"):
        await again.head()
    assert call.wire.is_closed


async def test_a_lost_connection_is_freed_without_a_garbage_collection() -> None:
    call = Call()
    connection = weakref.ref(call.connection)
    gc.disable()
    try:
        await call.come(LENGTH + b"0123456789", end="closes")
        del call

        assert connection() is None
    finally:
        gc.enable()
