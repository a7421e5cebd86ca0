"""A plain response gives what aiohttp's parser gives, however it comes; any other is aiohttp's."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from unittest import mock

import pytest
from aiohttp import SocketTimeoutError
from aiohttp.connector import Connection
from aiohttp.streams import StreamReader
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yarl import URL

from tapeway.core.model.messages import Request, ResponseHead
from tapeway.errors import TapewayError
from tapeway.loop_guard import LoopGuard
from tapeway.upstream import connection as connections
from tapeway.upstream.client import WholeAnswer
from tapeway.upstream.connection import ReceivedBody, UpstreamConnection, read_plain_head
from tapeway.upstream.response import UpstreamAnswer
from tests.support.fakes.broker import until
from tests.support.thoroughness import examples

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LENGTH = HEAD + b"Content-Length: 10\r\n\r\n"
REQUEST = Request("default", "GET", "/", base="http://127.0.0.1:1")
End = Literal["stays", "closes", "breaks"]


class Wire(asyncio.Transport):
    """A transport that has no socket below."""

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.reads = False, True

    def is_read(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Held:
    """A connection that one request holds, as the connector gives it out."""

    def __init__(self, protocol: UpstreamConnection) -> None:
        self.protocol: UpstreamConnection | None = protocol
        self.transport = protocol.transport
        self.reused: bool | None = None

    def release(self) -> None:
        if self.protocol is not None:
            self.reused = not self.protocol.should_close
        self.protocol = None

    def close(self) -> None:
        if self.protocol is not None:
            self.reused = False
            self.protocol.close()
        self.protocol = None


@dataclass
class Outcome:
    """What an app, a recording and the next request see of a response."""

    head: ResponseHead | None = None
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    """Each with the number of the segment at which it was handed over."""
    ended_at: int | None = None
    error: str = ""
    reused: bool | None = None
    left_reusable: bool = False
    is_plain: bool = False
    framed: bytes | None = field(default=None, compare=False)


async def received(
    segments: Sequence[bytes],
    end: End,
    *,
    plain: bool,
    most: int = 10_000,
    pause_at: int = -1,
    passed_on: bool = False,
) -> Outcome:
    """What becomes of a response that comes in these segments."""
    seen, at = Outcome(), 0
    protocol = UpstreamConnection(asyncio.get_running_loop())
    protocol.connection_made(wire := Wire())
    held = Held(protocol)

    def on_chunks(pieces: Sequence[bytes], _at_ms: float, lengths: list[int] | None = None) -> bool:
        assert lengths in (None, [len(piece) for piece in pieces if piece])
        seen.chunks += [(at, piece) for piece in pieces]
        return at == pause_at

    async def ask() -> None:
        message, content = await protocol.message(REQUEST, LoopGuard("x"))
        seen.is_plain = isinstance(message, ResponseHead)
        answer: UpstreamAnswer | WholeAnswer
        if isinstance(content, ReceivedBody):
            held.release()
            answer = WholeAnswer(cast(ResponseHead, message), content, lambda: 0.0, 0.0)
        else:
            answer = UpstreamAnswer(
                *(cast(Connection, held), None, URL(REQUEST.base), "GET", message, content),
                *(lambda: 0.0, 0.0),
            )
        try:
            answer.open()
            seen.head = answer.head
            if passed_on:
                async for piece in answer.pieces():
                    on_chunks([piece], 0.0)
            else:
                while await answer.receive(most, on_chunks):
                    await turns(1)
                seen.framed = answer.framed()
                assert seen.framed in (None, framed([piece for _, piece in seen.chunks]))
            seen.ended_at = at
        finally:
            answer.close()

    with mock.patch.object(connections, "read_plain_head", read_plain_head if plain else nothing):
        protocol.expect(bodiless=False, idle_s=60)
        asking = asyncio.get_running_loop().create_task(ask())
        await turns()
        for number, segment in enumerate(segments):
            at = number
            if not wire.closed:
                protocol.data_received(segment)
            await turns()
        at += 1
        if end != "stays":
            wire.closed = True
            protocol.connection_lost(ConnectionResetError("") if end == "breaks" else None)
            await turns()
        seen.left_reusable = end == "stays" and not protocol.should_close
        asking.cancel()
        try:
            await asking
        except asyncio.CancelledError:
            seen.error = "still waiting"
        except TapewayError as exc:
            seen.error = f"{exc.status} {exc.code}"
        except Exception as exc:
            seen.error = type(exc).__name__
    seen.reused = held.reused
    protocol.close()
    protocol.connection_lost(None)
    return seen


def framed(chunks: Sequence[bytes]) -> bytes:
    """A body in these chunks, and the last one."""
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (*chunks, b""))


def nothing(_: bytes) -> None:
    """Finds no head plain."""


async def turns(number: int = 6) -> None:
    """Let the task that asks come to where it waits."""
    for _ in range(number):
        await asyncio.sleep(0)


def both(segments: Sequence[bytes], end: End = "stays", **how: Any) -> tuple[Outcome, Outcome]:
    """What plain reading and aiohttp's parser make of it."""

    async def compared() -> tuple[Outcome, Outcome]:
        own = await received(segments, end, plain=True, **how)
        return own, await received(segments, end, plain=False, **how)

    own, parsed = asyncio.run(compared())
    assert not parsed.is_plain
    return own, parsed


def same(own: Outcome, parsed: Outcome) -> bool:
    """Whether they differ in nothing but who read it."""
    own.is_plain = False
    return own == parsed


FIELDS = st.sampled_from(
    [
        *(b"X-A: 1", b"x-b:2", b"Set-Cookie: a=b; Path=/", b"Content-Type: text/event-stream"),
        *(b"Connection: keep-alive", b"Keep-Alive: timeout=5", b"X-Empty:", b"X-Wide:  a  "),
        *(b"Connection: close", b"Connection: x-a", b"X-Utf: \xc3\xa4", b"Trailer: x-t"),
        *(b"Tapeway-Outcome: miss", b"Content-Length: 3", b"X-Fold: a\r\n b"),
    ]
)
STATUS = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 529 Overloaded: try later"),
        *(b"HTTP/1.1 200 ", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No Content"),
        *(b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 600 X", b"HTTP/1.1 200 OK "),
    ]
)
PIECE = st.one_of(
    st.binary(min_size=1, max_size=20),
    st.sampled_from([b"data: x\n\n", b"data: x\r\n\r\n", b"0\r\n\r\n", b"\r\n", b"5\r\nhello\r\n"]),
)
SIZE_LINE = st.sampled_from(
    [b"%x", b"%x", b"%X", b"%x", b"0%x", b"%x;a=b", b"%x ", b"+%x", b"0x%x"]
)
LAST = st.sampled_from(
    [b"0\r\n\r\n"] * 4 + [b"0\r\nx-t: 1\r\n\r\n", b"00\r\n\r\n", b"0\r\n", b"", b"0\r\n\r\nEXTRA"]
)


@st.composite
def responses(draw: st.DrawFn, *, odd: bool) -> bytes:
    """The bytes of a response; where they may be odd, most have a fault or something unusual."""
    status = draw(STATUS) if odd else b"HTTP/1.1 200 OK"
    fields = draw(st.lists(FIELDS if odd else st.sampled_from([b"X-A: 1", b"X-B: 2"]), max_size=3))
    pieces = draw(st.lists(PIECE, max_size=6))
    body = b"".join(pieces)
    if draw(st.booleans()):
        fields.insert(0, b"Content-Length: %d" % len(body))
        body += draw(st.sampled_from([b"", b"", b"EXTRA", HEAD])) if odd else b""
    else:
        fields.insert(0, b"Transfer-Encoding: chunked")
        lines = [(draw(SIZE_LINE) if odd else b"%x") % len(piece) for piece in pieces]
        framed = [b"%b\r\n%b\r\n" % pair for pair in zip(lines, pieces, strict=True)]
        body = b"".join(framed) + (draw(LAST) if odd else b"0\r\n\r\n")
    data = b"\r\n".join([status, *fields, b"", body])
    if odd and draw(st.booleans()):
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]
    return data


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The data in segments; none is empty."""
    ends = sorted({each % len(data) for each in at} - {0})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


CUTS = st.lists(st.integers(0, 400), max_size=8)
ENDS = st.sampled_from(["stays", "closes", "breaks"])


@settings(max_examples=examples(400))
@given(responses(odd=True), CUTS, ENDS, st.sampled_from([10_000, 10]), st.integers(-1, 3))
@example(CHUNKED + b"5\r\nhello\r\n0;a\r\n\r\n", [47, 57], "stays", 10_000, -1)
def test_any_response_is_read_as_aiohttps_parser_reads_it(
    data: bytes, cuts: list[int], end: End, most: int, pause_at: int
) -> None:
    own, parsed = both(cut(data, cuts), end, most=most, pause_at=pause_at)

    assert same(own, parsed)


@settings(max_examples=examples(200))
@given(responses(odd=True), CUTS, ENDS)
@example(CHUNKED + b"5\r\nhello\r\n0;a\r\n\r\n", [47, 57], "stays")
@example(CHUNKED + b"5\r\nhello\r\n2;a\r\nok\r\n0\r\n\r\n", [47, 57], "stays")
def test_any_response_is_passed_on_as_aiohttps_parser_reads_it(
    data: bytes, cuts: list[int], end: End
) -> None:
    own, parsed = both(cut(data, cuts), end, passed_on=True)

    assert same(own, parsed)


@settings(max_examples=examples(200))
@given(responses(odd=False), CUTS, ENDS)
def test_a_plain_response_in_any_segments_is_whole_and_its_connection_reused(
    data: bytes, cuts: list[int], end: End
) -> None:
    start = data.index(b"\r\n\r\n") + 4
    segments = [data[:start], *cut(data[start:], cuts)] if data[start:] else [data]
    own, parsed = both(segments, end)

    assert own.is_plain
    assert own.error == ""
    assert own.reused
    assert same(own, parsed)


ORDINARY = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "no reason": b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok",
    "an informational status": b"HTTP/1.1 103 Early\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    "a status without a body": b"HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n",
    "not modified": b"HTTP/1.1 304 X\r\nContent-Length: 2\r\n\r\n",
    "status 600": b"HTTP/1.1 600 X\r\nContent-Length: 2\r\n\r\nok",
    "no length": HEAD + b"X: y\r\n\r\nok",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "length and chunks": LENGTH[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
    "a signed length": HEAD + b"Content-Length: +2\r\n\r\nok",
    "a long length": HEAD + b"Content-Length: 1000000000000000\r\n\r\nok",
    "another coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "a connection that ends": LENGTH[:-2] + b"Connection: close\r\n\r\n",
    "a connection with options": LENGTH[:-2] + b"Connection: keep-alive, x\r\n\r\n",
    "an upgrade": LENGTH[:-2] + b"Upgrade: h2c\r\n\r\n",
    "an old WebSocket": LENGTH[:-2] + b"Sec-WebSocket-Key1: x\r\n\r\n",
    "a trailer": CHUNKED[:-2] + b"Trailer: x\r\n\r\n",
    "a proxy's connection": LENGTH[:-2] + b"Proxy-Connection: close\r\n\r\n",
    "another tapeway": LENGTH[:-2] + b"Tapeway-Outcome: miss\r\n\r\n",
    "a folded field": LENGTH[:-2] + b"X: a\r\n b\r\n\r\n",
    "a bare line feed": HEAD[:-2] + b"\nContent-Length: 2\r\n\r\nok",
    "a space before the colon": LENGTH[:-2] + b"X : a\r\n\r\n",
    "two spaces behind the colon": LENGTH[:-2] + b"X:  a\r\n\r\n",
    "a space at the end": LENGTH[:-2] + b"X: a \r\n\r\n",
    "a tab": LENGTH[:-2] + b"X: a\tb\r\n\r\n",
    "an octet beyond ASCII": LENGTH[:-2] + b"X: \xe4\r\n\r\n",
    "a control character": LENGTH[:-2] + b"X: a\x01\r\n\r\n",
    "no name": LENGTH[:-2] + b": a\r\n\r\n",
    "no value": LENGTH[:-2] + b"X:\r\n\r\n",
    "a head of 16 KiB": LENGTH[:-2] + b"X: %b\r\n\r\n" % (b"a" * 16_384),
    "too many fields": LENGTH[:-2] + b"X: a\r\n" * 200 + b"\r\n",
    "half a head": HEAD + b"Content-Le",
    "an empty line first": b"\r\n" + LENGTH,
}


@pytest.mark.parametrize("name", ORDINARY)
def test_a_head_that_is_not_plain_is_left_to_aiohttp(name: str) -> None:
    assert read_plain_head(ORDINARY[name]) is None
    own, parsed = both([ORDINARY[name], b"ok"], "closes")

    assert not own.is_plain
    assert own == parsed


NOT_PLAIN_LATER = {
    "no size": b"zz\r\nok\r\n",
    "half of no size": b"zz",
    "a sign": b"+2\r\nok\r\n",
    "a prefix": b"0x2\r\nok\r\n",
    "an underscore": b"1_0\r\n",
    "an oversize size": b"10000000000000002\r\n",
    "no digits at all": b"\r\n",
    "a chunk that is too long": b"2\r\nokay\r\n",
    "an extension": b"2;a=b\r\nok\r\n0\r\n\r\n",
    "a trailer": b"0\r\nX: y\r\n\r\n",
    "zeros first": b"002\r\nok\r\n0\r\n\r\n",
    "several zeros": b"00\r\n\r\n",
    "a bare line feed": b"2\nok\r\n0\r\n\r\n",
    "bytes behind the end": b"0\r\n\r\nEXTRA",
    "a chunk behind the end": b"0\r\n\r\n2\r\nok\r\n",
    "a response behind the end": b"0\r\n\r\n" + LENGTH + b"0123456789",
}


@pytest.mark.parametrize("before", [b"", b"3\r\none\r\n", b"3\r\non"])
@pytest.mark.parametrize("name", NOT_PLAIN_LATER)
def test_chunks_that_are_not_plain_end_as_with_aiohttp(name: str, before: bytes) -> None:
    rest = (b"e\r\n" if before.endswith(b"on") else b"") + NOT_PLAIN_LATER[name]
    for segments in ([CHUNKED + before, rest], [CHUNKED, before + rest], [CHUNKED + before + rest]):
        for one_by_one in (False, True):
            last = [rest[at : at + 1] for at in range(len(rest))] if one_by_one else [rest]
            sent = [*segments[:-1], *last] if segments[-1] == rest else segments
            own, parsed = both(sent, "closes")

            assert same(own, parsed)


def test_bytes_that_nobody_asked_for_use_the_connection_up() -> None:
    chunked = [CHUNKED + b"2\r\nok\r\n", b"0\r\n\r\n"]
    for behind in (LENGTH + b"0123456789", b"EXTRA", b"\r\n"):
        for whole in ([LENGTH + b"0123456789"], [LENGTH, b"0123456789"], chunked):
            own, parsed = both([*whole, behind])

            assert own.is_plain
            assert own.reused
            assert same(own, parsed)
    assert not both([LENGTH + b"0123456789", LENGTH])[0].left_reusable


@pytest.mark.parametrize("head", [CHUNKED, HEAD + b"Content-Length: 3000000\r\n\r\n"])
async def test_a_body_that_is_taken_too_slowly_is_held_back(head: bytes) -> None:
    size = 100_000
    segment = bytes(size) if head != CHUNKED else b"%x\r\n%b\r\n" % (size, bytes(size))
    protocol = UpstreamConnection(asyncio.get_running_loop())
    protocol.connection_made(wire := Wire())
    protocol.expect(bodiless=False, idle_s=60)
    sent = 0
    protocol.data_received(head)
    _, content = await protocol.message(REQUEST, LoopGuard("x"))
    assert isinstance(content, StreamReader)
    while wire.is_read():
        protocol.data_received(segment)
        sent += 1
        assert sent < 10
    # Who does not read is not waited for.
    assert protocol._heard_s == math.inf

    while len(content._buffer):
        await content.readany()

    assert wire.is_read()
    assert protocol._heard_s < math.inf
    protocol.connection_lost(None)


async def test_many_small_chunks_are_held_back_too() -> None:
    protocol = UpstreamConnection(asyncio.get_running_loop())
    protocol.connection_made(wire := Wire())
    protocol.expect(bodiless=False, idle_s=60)
    protocol.data_received(CHUNKED)
    protocol.data_received(b"1\r\nx\r\n" * 20_000)

    assert not wire.is_read()
    protocol.connection_lost(None)


def test_reading_plain_responses_makes_no_parser() -> None:
    async def ask() -> None:
        protocol = UpstreamConnection(asyncio.get_running_loop())
        protocol.connection_made(Wire())
        with mock.patch.object(protocol, "set_response_params", side_effect=AssertionError):
            for sent in (LENGTH + b"0123456789", CHUNKED + b"2\r\nok\r\n0\r\n\r\n"):
                protocol.expect(bodiless=False, idle_s=60)
                protocol.data_received(sent)
                await protocol.message(REQUEST, LoopGuard("x"))
        protocol.connection_lost(None)

    asyncio.run(ask())


async def test_silence_counts_from_the_last_segment_without_a_timer_for_each() -> None:
    connection = UpstreamConnection(asyncio.get_running_loop())
    connection.read_timeout = 3600
    connection.start_timeout()
    timer = connection._read_timeout_handle
    connection._heard_s -= 3000

    connection._reschedule_timeout()
    assert connection._read_timeout_handle is timer

    connection._on_read_timeout()
    assert connection.exception() is None
    assert connection._read_timeout_handle is not timer

    connection._heard_s -= 3600
    connection._on_read_timeout()
    assert isinstance(connection.exception(), SocketTimeoutError)


async def test_whole_chunks_go_to_who_receives_them_without_the_content() -> None:
    connection = UpstreamConnection(asyncio.get_running_loop())
    connection.connection_made(Wire())
    connection.expect(bodiless=False, idle_s=60)
    connection.data_received(CHUNKED)
    connection.receiver, connection.follows = mock.Mock(), True
    connection._heard_s = 0.0
    connection.data_received(b"2\r\nok\r\n3\r\nyes\r\n")

    connection.receiver.take.assert_called_once_with([b"ok", b"yes"], [2, 3], 5)
    connection.receiver.arrived.assert_not_called()
    # Silence counts from here.
    assert connection._heard_s > 0
    connection.connection_lost(None)


def timer(connection: UpstreamConnection) -> asyncio.TimerHandle | None:
    return connection._read_timeout_handle


async def test_one_timer_serves_request_after_request_and_ends_with_the_connection() -> None:
    connection = UpstreamConnection(asyncio.get_running_loop())
    connection.connection_made(Wire())
    timers = set()
    for _ in range(3):
        connection.expect(bodiless=False, idle_s=60)
        timers.add(timer(connection))
        connection.data_received(LENGTH + b"0123456789")
        await connection.message(REQUEST, LoopGuard("x"))
    assert len(timers) == 1

    connection._on_read_timeout()
    assert timer(connection) is None
    assert connection.exception() is None

    connection.expect(bodiless=False, idle_s=60)
    assert (last := timer(connection)) is not None
    connection.connection_lost(None)
    assert last.cancelled()


async def quick_chunks(
    gap_ms: float, segments: Sequence[bytes]
) -> tuple[UpstreamConnection, Wire, str]:
    """A connection to which segments came at this interval, and after which of them it was read."""
    now, read = 0.0, ""
    connection = UpstreamConnection(asyncio.get_running_loop())
    connection.connection_made(wire := Wire())
    connection.expect(bodiless=False, idle_s=60)
    connection.data_received(CHUNKED)
    message, content = await connection.message(REQUEST, LoopGuard("x"))
    answer = UpstreamAnswer(
        *(cast(Connection, Held(connection)), None, URL(REQUEST.base), "GET", message),
        *(cast(StreamReader, content), lambda: now / 1000, 0.0),
    )
    answer.open()
    receiving = asyncio.get_running_loop().create_task(
        answer.receive(10**9, mock.Mock(return_value=False))
    )
    await turns()
    for segment in segments:
        now += gap_ms
        connection.data_received(segment)
        read += "r" if wire.is_read() else "-"
    receiving.cancel()
    await turns()
    return connection, wire, read


ONE, MANY, LARGE = b"3\r\none\r\n", b"3\r\none\r\n" * 10, b"10000\r\n%b\r\n" % bytes(65536)


@pytest.mark.parametrize(
    ("gap_ms", "segments", "read"),
    [
        (0.4, [ONE] * 7, "rrrr---"),
        (0.6, [ONE] * 7, "rrrrrrr"),
        (4.0, [MANY] * 7, "rrrr---"),
        (4.0, [*[MANY] * 3, ONE, *[MANY] * 4], "rrrrrrrr"),
        (0.1, [LARGE] * 7, "rrrrrrr"),
        (0.1, [*[ONE] * 4, ONE + b"0\r\n\r\n"], "rrrrr"),
        (0.1, [*[ONE] * 4, b"3\r\non", b"e\r\n", b"0\r\n\r\n"], "rrrrrrr"),
    ],
)
async def test_chunks_that_come_quickly_are_read_together(
    gap_ms: float, segments: list[bytes], read: str
) -> None:
    connection, wire, found = await quick_chunks(gap_ms, segments)

    assert found == read
    await until(wire.is_read)
    connection.connection_lost(None)


async def test_a_body_that_is_held_back_is_not_read_on_a_moment_later() -> None:
    connection, wire, _ = await quick_chunks(0.1, [ONE] * 5)
    connection.pause_reading()
    connection._read_on()

    assert not wire.is_read()
    connection.connection_lost(None)


async def test_a_connection_may_be_lost_before_it_is_read_on() -> None:
    connection, wire, _ = await quick_chunks(0.1, [ONE] * 5)
    # However long the test took to come here.
    wire.pause_reading()
    connection.connection_lost(None)
    connection._read_on()

    assert not wire.is_read()


@pytest.mark.parametrize(
    ("segments", "known"),
    [
        ([CHUNKED + b"3\r\none\r\n", b"5\r\nthree\r\n", b"0\r\n\r\n"], True),
        ([CHUNKED, b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"], True),
        ([CHUNKED + b"0\r\n\r\n"], True),
        ([CHUNKED + b"3\r\none\r\n", b"5\r\nth", b"ree\r\n0\r\n\r\n"], False),
        ([CHUNKED + b"A\r\n" + bytes(10) + b"\r\n0\r\n\r\n"], False),
        ([CHUNKED + b"3\r\none\r\n", b"0\r\nX-T: 1\r\n\r\n"], False),
        ([LENGTH + bytes(5), bytes(5)], False),
        ([CHUNKED] + [framed([bytes(200 * 1024)])[:-5]] * 2 + [b"0\r\n\r\n"], False),
    ],
)
async def test_how_a_body_is_sent_on_is_known_where_it_came_so(
    segments: list[bytes], known: bool
) -> None:
    seen = await received(segments, "stays", plain=True, most=1_000_000)

    assert (seen.error, seen.framed is not None) == ("", known)
