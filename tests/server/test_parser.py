"""Requests are the same however their bytes are cut, and a malformed one spoils none before it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from aiohttp.streams import StreamReader
from hypothesis import given
from hypothesis import strategies as st

from tapeway.server.parser import Parser, RequestParser

QUEUE = 4
READ_AHEAD = 64


class SocketlessConnection(BaseProtocol):
    """A connection without a socket: it takes what its parser gives and reads every body."""

    def __init__(self) -> None:
        loop = asyncio.new_event_loop()
        super().__init__(loop)
        inner = HttpRequestParser(
            *(self, loop, READ_AHEAD),
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=QUEUE,
        )
        self.parser = RequestParser(cast(Parser, inner), queue=QUEUE, max_header=10_000)
        self._parser = cast(HttpRequestParser, self.parser)
        self._queued: list[tuple[RawRequestMessage, StreamReader]] = []
        self._body = b""
        self.seen: list[tuple[str, str, bytes]] = []
        self.fault: HttpProcessingError | None = None
        loop.close()

    def data_received(self, data: bytes) -> None:
        if self.fault is None:
            self._feed(data)
        if self.parser.overdue:
            self._feed(b"")

    def settle(self) -> None:
        """Handle requests until none is left and none is held back."""
        while self._queued:
            message, payload = self._queued[0]
            while not payload.at_eof():
                if not (piece := payload.read_nowait(-1)):
                    return
                self._body += piece
            del self._queued[0]
            self.parser.message_consumed()
            self.seen.append((message.method, message.path, self._body))
            self._body = b""
            self.data_received(b"")

    def _feed(self, data: bytes) -> None:
        try:
            messages, _upgraded, _tail = self.parser.feed_data(data)
        except HttpProcessingError as exc:
            self.fault = exc
            return
        self._queued += messages
        assert len(self._queued) <= QUEUE


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request's bytes and what they mean."""

    wire: bytes
    meaning: tuple[str, str, bytes]


def request(method: str, path: str, body: bytes, chunk: int, before: bytes) -> SentRequest:
    """A request with a body in chunks of this size, or under a length for 0."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: a", b"X-Words: GET / FOO bar"]
    if chunk:
        lines.append(b"Transfer-Encoding: chunked")
        pieces = [body[at : at + chunk] for at in range(0, len(body), chunk)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        lines += [b"Content-Length: %d" % len(body)] if body else []
        framed = body
    wire = before + b"\r\n".join([*lines, b"", framed])
    return SentRequest(wire, (method, path, body))


METHODS = ("GET", "POST", "get", "FOO", "G", "SETUP", "M" * 64)
BODIES = (b"", b"hello", b"GET / HTTP/1.1\r\n\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"a b" * 100)
REQUESTS = st.lists(
    st.builds(
        request,
        st.sampled_from(METHODS),
        st.sampled_from(["/", "/a?b=%20", "/" + "x" * 200]),
        st.sampled_from(BODIES),
        st.sampled_from([0, 0, 1, 7, 100]),
        st.sampled_from([b"", b"\r\n", b"\r\n\r\n"]),
    ),
    min_size=1,
    max_size=8,
)
CUTS = st.lists(st.integers(0, 2000), max_size=12)


def segments(wire: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The wire cut at these places."""
    places = sorted({0, len(wire), *(cut % len(wire) for cut in cuts)})
    for start, end in pairwise(places):
        yield wire[start:end]


def one_by_one(wire: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in wire]


@given(REQUESTS, CUTS, st.booleans())
def test_cutting_changes_nothing_where_bodies_have_lengths(
    sent: list[SentRequest], cuts: list[int], at_once: bool
) -> None:
    plain = [request(*each.meaning, 0, b"") for each in sent]
    intake = SocketlessConnection()
    for segment in segments(b"".join(each.wire for each in plain), cuts):
        intake.data_received(segment)
        if not at_once or intake.parser.overdue:
            intake.settle()
    intake.settle()

    assert intake.fault is None
    assert intake.seen == [each.meaning for each in plain]


@given(REQUESTS, CUTS)
def test_cutting_changes_nothing_where_each_request_waits_for_the_answer(
    sent: list[SentRequest], cuts: list[int]
) -> None:
    intake = SocketlessConnection()
    for each in sent:
        for segment in segments(each.wire, cuts):
            intake.data_received(segment)
            intake.settle()

    assert intake.fault is None
    assert intake.seen == [each.meaning for each in sent]


@given(REQUESTS)
def test_bytes_may_come_one_by_one(sent: list[SentRequest]) -> None:
    intake = SocketlessConnection()
    for byte in one_by_one(b"".join(each.wire for each in sent)):
        intake.data_received(byte)
        intake.settle()

    assert intake.fault is None
    assert intake.seen == [each.meaning for each in sent]


@given(REQUESTS, CUTS)
def test_a_malformed_request_spoils_none_before_it(
    sent: list[SentRequest], cuts: list[int]
) -> None:
    plain = [request(*each.meaning, 0, b"") for each in sent]
    wire = b"".join(each.wire for each in plain) + b"GET / HTTP/1.1\r\n: x\r\n\r\n" + plain[0].wire
    intake = SocketlessConnection()
    for segment in segments(wire, cuts):
        intake.data_received(segment)
        intake.settle()

    assert intake.fault is not None
    assert intake.seen == [each.meaning for each in plain]


@pytest.mark.parametrize(
    "last", [b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]
)
def test_requests_behind_a_chunked_body_in_one_segment_are_known_or_refused(last: bytes) -> None:
    upload = request("POST", "/up", b"hello", 2, b"")
    intake = SocketlessConnection()
    intake.data_received(upload.wire + last + last)
    intake.settle()

    assert intake.seen[0] == upload.meaning
    if last.startswith(b"FOO"):
        assert intake.fault is not None
    else:
        assert intake.seen[1:] == [("GET", "/", b"")] * 2


@pytest.mark.parametrize("begun", [b"G", b"GE", b"GET / HTTP/1.1\r\nX-Words: FOO "])
def test_a_request_begun_behind_a_chunked_body_is_gone_on_with(begun: bytes) -> None:
    upload = request("POST", "/up", b"hello", 2, b"")
    whole = b"GET / HTTP/1.1\r\nX-Words: FOO bar / HTTP/1.1\r\nHost: a\r\n\r\n"
    intake = SocketlessConnection()
    intake.data_received(upload.wire + begun)
    intake.settle()
    intake.data_received(whole.removeprefix(begun))
    intake.settle()

    assert intake.fault is None
    assert intake.seen == [upload.meaning, ("GET", "/", b"")]


def test_a_body_that_outgrows_the_read_ahead_holds_the_next_request_back() -> None:
    first, second = request("POST", "/1", b"x" * 1000, 0, b""), request("FOO", "/2", b"", 0, b"")
    intake = SocketlessConnection()
    intake.data_received(first.wire + second.wire)
    intake.settle()

    assert intake.seen == [first.meaning, second.meaning]


def test_more_requests_than_the_queue_holds_wait_their_turn() -> None:
    sent = [request("FOO", f"/{number}", b"", 0, b"") for number in range(3 * QUEUE)]
    intake = SocketlessConnection()
    intake.data_received(b"".join(each.wire for each in sent))
    intake.settle()

    assert intake.seen == [each.meaning for each in sent]


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00\x01", b"M" * 65, b"\r", b"GE", b"\n"])
def test_what_is_no_request_yet_gives_none(junk: bytes) -> None:
    intake = SocketlessConnection()
    intake.data_received(junk)

    assert intake.seen == []
    assert (intake.fault is None) == (junk in (b"\r", b"GE", b"\n"))
