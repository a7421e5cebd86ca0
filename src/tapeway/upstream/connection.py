"""A connection to an upstream: aiohttp's, but that it reads plain responses without aiohttp's parser.

The parser makes an object of each head and calls three methods for each chunk: most of what a
recording spent on its upstream. A response whose head and body are plain is read here; any other is
given to the parser, untouched, or from the place on where it is no longer plain. So errors, and
whatever is unusual, are aiohttp's (ADR 40).
"""

import asyncio
import math
import re
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple, Protocol, cast

from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import _EXC_SENTINEL, BaseTimerContext
from aiohttp.http import HttpResponseParser, RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

from tapeway.core.http.chunks import LAST_CHUNK, size_line
from tapeway.core.http.headers import HOP_BY_HOP, OWN
from tapeway.core.model.messages import Framing, Request, ResponseHead
from tapeway.loop_guard import LoopGuard

KIB = 1024
MAX_LINE = 16 * KIB
MAX_FIELD = 64 * KIB
MAX_FIELDS = 256
_STATUS_LINE = b"HTTP/1.1 200 OK\r\n"

_MAX_HEAD = 16 * KIB
"""Below each limit of aiohttp's parser on lines, fields and their number."""

_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9]) ([!-~](?:[ -~]{0,200}[!-~])?)\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}: ?[!-~](?:[ -~]*[!-~])?\r\n){1,128})\r\n"
)
_FIELD = re.compile(rb"([^:]+): ?(.*)\r\n")
_KEEP_ALIVE = b"keep-alive"
_PLAIN = frozenset({b"content-length", b"transfer-encoding", b"connection", b"keep-alive"})
"""Fields of one connection that a plain response may have, once."""
_SPECIAL = HOP_BY_HOP | OWN | _PLAIN | {b"sec-websocket-key1"}
"""Fields that change how the connection or the body is read, and those of another tapeway."""
_CHUNKED: Framing = "chunked"
_BY_LENGTH: Framing = "length"
_BODILESS = frozenset({b"204", b"205", b"304"})
_SIZE = re.compile(rb"[0-9]{1,15}")

_CHUNK_SIZE = re.compile(rb"[1-9a-fA-F][0-9a-fA-F]{0,6}|0")
_LONGEST_LINE = 7
_MOST_FRAMED = 256 * KIB
_LATER_S = 0.001
_SMALL_SEGMENT = 4 * KIB
_UNFINISHED = re.compile(rb"(?:[1-9a-fA-F][0-9a-fA-F]{0,6}\r?|0(?:\r(?:\n\r?)?)?)?")

Clock = Callable[[], float]
"""Seconds from an arbitrary start, never going back."""
ResponseMessage = RawResponseMessage | ResponseHead
"""A head as aiohttp's parser read it, or a plain one."""


class ReceivedBody(NamedTuple):
    """A plain body that came in one segment with its head; without HTTP chunks it is one itself."""

    chunks: list[bytes]
    lengths: list[int]
    """Of the chunks: none is empty."""
    framed: bytes | None = None
    """The chunks with their framing and the last one, where the body came so."""


ResponseContent = StreamReader | ReceivedBody
"""A body that is still to be received, or one that came as a whole."""


def read_plain_head(data: bytes) -> tuple[ResponseHead, int] | None:
    """The head at the beginning of a segment and where its body begins; None if it is not plain."""
    found = _HEAD.match(data, 0, _MAX_HEAD)
    if found is None or found[1] in _BODILESS:
        return None
    kept: list[tuple[bytes, bytes]] = []
    special: dict[bytes, bytes] = {}
    for field in _FIELD.findall(found[3]):
        name = field[0].lower()
        if name not in _SPECIAL:
            kept.append(field)
        elif name not in _PLAIN or name in special:
            return None
        else:
            special[name] = field[1].lower()
    size, coding = special.get(b"content-length"), special.get(b"transfer-encoding")
    if special.get(b"connection", _KEEP_ALIVE) != _KEEP_ALIVE:
        return None
    length, framing = None, _CHUNKED
    if size is not None and coding is None and _SIZE.fullmatch(size):
        length, framing = int(size), _BY_LENGTH
    elif size is not None or coding != b"chunked":
        return None
    status, reason = int(found[1]), found[2].decode()
    head = ResponseHead(status, reason, tuple(kept), framing, "HTTP/1.1", length)
    return head, found.end()


class PlainChunks:
    """Takes a chunked body apart, segment by segment.

    `left` is how much is missing of the chunk that has begun, None between two chunks; `rest` is the
    beginning of a line whose end is still to come. `ended` is set by the last chunk.
    """

    __slots__ = ("_segments", "ended", "left", "rest", "size")

    def __init__(self) -> None:
        self.size = 0
        """How many bytes of the body have come."""
        self.left: int | None = None
        self.rest = b""
        self.ended = False
        self._segments: list[bytes] | None = []

    def framed(self) -> bytes | None:
        """The whole body as it is sent on: as it came, where all of its segments had whole chunks."""
        return b"".join(self._segments) if self.ended and self._segments else None

    def read_whole(self, data: bytes) -> tuple[list[bytes], list[int]] | None:
        """The chunks of the next segment, and their lengths.

        None, and nothing is read, where it has parts of some.
        """
        if self.left is not None or self.rest:
            return None
        chunks, sizes, rest = _only_chunk(data) or _whole_chunks(data)
        if rest and rest != LAST_CHUNK:
            return None
        self.ended = bool(rest)
        self.size += sum(sizes)
        if self._segments is not None:
            self._segments.append(data)
            if self.size > _MOST_FRAMED:
                self._segments = None
        return chunks, sizes

    def read(self, data: bytes) -> tuple[list[bytes], list[int], bytes]:
        """The pieces of chunks in the next segment, where chunks end in the body, and what is unread.

        What is unread is not plain; it comes where `left` says, and `rest` is then empty.
        """
        self._segments = None
        data = self.rest + data
        pieces, ends, at = list[bytes](), list[int](), 0
        self.rest = b""
        looked = False
        while True:
            if self.left is None and not looked:
                looked = True
                at += self._take_whole(data[at:], pieces, ends)
            if self.left is None:
                line_end = data.find(b"\r\n", at, at + _LONGEST_LINE + 2)
                size = _chunk_size(data[at:line_end]) if line_end >= 0 else -1
                if size <= 0:
                    break
                self.left, at = size, line_end + 2
            if piece := data[at : at + self.left]:
                pieces.append(piece)
                self.size += len(piece)
                self.left -= len(piece)
                at += len(piece)
            if self.left:
                return pieces, ends, b""
            if data[at : at + 2] != b"\r\n":
                break
            ends.append(self.size)
            self.left, at = None, at + 2
        return pieces, ends, self._unread(data[at:])

    def _take_whole(self, data: bytes, pieces: list[bytes], ends: list[int]) -> int:
        """Add the whole chunks that come next; returns how much of the data they are."""
        chunks, sizes, rest = _whole_chunks(data)
        pieces += chunks
        ends += accumulate(sizes[1:], initial=self.size + sizes[0]) if sizes else ()
        self.size += sum(sizes)
        return len(data) - len(rest)

    def _unread(self, data: bytes) -> bytes:
        """What cannot be read of the rest: nothing, where it may still become plain."""
        if self.left is None and data == LAST_CHUNK:
            self.ended = True
            return b""
        plain = data in (b"", b"\r") if self.left is not None else _UNFINISHED.fullmatch(data)
        if not plain:
            return data
        self.rest = data
        return b""


def _only_chunk(data: bytes) -> tuple[list[bytes], list[int], bytes] | None:
    """The same of one chunk alone, in a quarter of the time; else None.

    An event that comes while the next one is still made has a segment of its own.
    """
    if len(data) > _SMALL_SEGMENT:
        return None
    # Methods that take a range need longer for their arguments than this does.
    line, _, framed = data.partition(b"\r\n")
    size = len(framed) - 2
    if size <= 0 or line != size_line(size) or framed[size:] != b"\r\n":
        return None
    return [framed[:size]], [size], b""


def _whole_chunks(data: bytes) -> tuple[list[bytes], list[int], bytes]:
    """The chunks that the data begins with, their lengths, and what stands behind them.

    None are found where one has a line end of this kind, as hardly any has.
    """
    parts = data.split(b"\r\n")
    chunks = parts[1:-1:2]
    sizes = [*map(len, chunks)]
    if 0 in sizes:
        last = sizes.index(0)
        del chunks[last:], sizes[last:]
    count = 2 * len(chunks)
    if parts[:count:2] != [*map(size_line, sizes)]:
        return [], [], data
    return chunks, sizes, b"\r\n".join(parts[count:])


class _ChunkSizes(dict[bytes, int]):
    """The size that the line before a chunk says, -1 if it is not plain.

    Only short sizes are remembered, some thousands, and nothing that is none: it may be data.
    """

    def __missing__(self, line: bytes) -> int:
        if _CHUNK_SIZE.fullmatch(line) is None:
            return -1
        size = int(line, 16)
        if len(line) <= 3:
            self[line] = size
        return size


_chunk_size = _ChunkSizes().__getitem__


class Receiver(Protocol):
    """Who takes the content of a response."""

    def arrived(self) -> None:
        """Take what a segment brought to the content."""

    def take(self, chunks: list[bytes], lengths: list[int], size: int) -> bool:
        """Take whole chunks of these lengths, with which so much of the body has come.

        Returns False where they have to wait in the content.
        """


class _Continued(StreamReader):
    """What aiohttp's parser takes for its own: all that it finds goes to a content that was begun."""

    __slots__ = ()

    @property
    def _begun(self) -> StreamReader:
        return cast(StreamReader, self._timer)

    def feed_data(self, data: bytes, size: int = 0) -> bool:
        return self._begun.feed_data(data, size)

    def begin_http_chunk_receiving(self) -> None:
        self._begun.begin_http_chunk_receiving()

    def end_http_chunk_receiving(self) -> None:
        self._begun.end_http_chunk_receiving()

    def feed_eof(self) -> None:
        self._begun.feed_eof()

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        self._begun.set_exception(exc, exc_cause)


class UpstreamConnection(ResponseHandler):
    """Receives the response to one request after another.

    It tells its `receiver` of each segment without waking a task, if it `follows` the segments.
    """

    receiver: Receiver | None = None
    follows = False
    chunks: PlainChunks | None = None
    """The body of the response, where it came in plain chunks so far."""
    _heard_s = math.inf
    """When the upstream was last heard of; infinite while it is not waited for."""
    _asked = False
    """Whether the head of a response is awaited that may be plain."""
    _plain: PlainChunks | int | None = None
    """Where in a plain body it is: in chunks, or so many bytes before its end."""
    _idle = False
    """Whether a plain response has ended, so that nothing more may come."""

    def expect(self, *, bodiless: bool, idle_s: float) -> None:
        """Get ready for the response to the next request."""
        self._skip_payload = bodiless
        self._read_timeout = idle_s
        self._payload = self.chunks = None
        self._idle = False
        # A server that spoke before it was asked is not plain.
        self._asked = not (bodiless or self._tail)
        if self._asked:
            self._parser = None
        else:
            self._parse()
        self.start_timeout()

    async def message(
        self, request: Request, loops: LoopGuard
    ) -> tuple[ResponseMessage, ResponseContent]:
        """The final response; those before it are shown to the guard against loops."""
        while True:
            message, payload = cast("tuple[ResponseMessage, ResponseContent]", await self.read())
            if isinstance(message, ResponseHead):
                return message, payload
            if not 100 <= message.code <= 199 or message.code == 101:
                return message, payload
            loops.interim(request, tuple(message.raw_headers))

    def read_later(self) -> None:
        """Read no more for a millisecond, or until the body that is read has ended."""
        # Its content reads on at its end.
        self._pause_transport_reading()
        self._loop.call_later(_LATER_S, self._read_on)

    def _read_on(self) -> None:
        if not (self._reading_paused or self._buffer_paused):
            self._resume_transport_reading()

    def forget_receiver(self) -> None:
        """Tell nobody of what follows."""
        self.receiver, self.follows, self.chunks = None, False, None

    def data_received(self, data: bytes) -> None:
        # Whose response ends with the segment gets it too.
        receiver = self.receiver if self.follows else None
        if self._plain is not None:
            # Resuming brings no data; one that was closed has no content any more.
            if data and self._payload is not None:
                self._read_plain(self._plain, self._payload, data, receiver)
            return
        if self._asked:
            if not data or self._begin_plain(data):
                return
            self._parse()
        elif self._idle and data:
            self._parse()
        super().data_received(data)
        self._fail_content()
        if receiver is not None:
            receiver.arrived()

    def _fail_content(self) -> None:
        """End a body that turned out to be no HTTP: aiohttp tells who waits for a head alone."""
        content, error = self._payload, self._exception
        if content is None or not isinstance(error, HttpProcessingError) or content.is_eof():
            return
        content.set_exception(error)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._plain is not None and self._payload is not None:
            rest = self._plain.rest if isinstance(self._plain, PlainChunks) else b""
            self._go_on_parsing(rest)
        super().connection_lost(exc)
        self._cancel_timer()

    def pause_reading(self) -> None:
        if self._parser is not None:
            super().pause_reading()
            return
        self._reading_paused = True
        self._pause_transport_reading()
        self._drop_timeout()

    def _begin_plain(self, data: bytes) -> bool:
        """Whether a response begins with this segment that is plain as far as it came."""
        if (found := read_plain_head(data)) is None:
            return False
        head, start = found
        body = data[start:]
        content = (
            self._begin_chunks(body) if head.length is None else self._begin(body, head.length)
        )
        if content is None:
            return False
        if isinstance(content, ReceivedBody):
            self._end_plain()
        self._asked = False
        self.feed_data(cast("tuple[RawResponseMessage, StreamReader]", (head, content)), 0)
        self._hold_back()
        return True

    def _begin(self, data: bytes, length: int) -> ResponseContent | None:
        """The body of this length that begins with this data, None where there is more of it."""
        if len(data) > length:
            return None
        if len(data) == length:
            return ReceivedBody([data], [length]) if data else ReceivedBody([], [])
        content = self._content()
        content.feed_data(data)
        self._plain = length - len(data)
        return content

    def _begin_chunks(self, data: bytes) -> ResponseContent | None:
        """The body in chunks that begins with this data, None where it is not plain."""
        chunks = PlainChunks()
        whole = chunks.read_whole(data)
        if whole is not None and chunks.ended:
            return ReceivedBody(*whole, chunks.framed())
        content = self._content()
        content.begin_http_chunk_receiving()
        if whole is not None:
            _fill(content, chunks, whole[0], [*accumulate(whole[1])])
        elif _fill_parts(content, chunks, data):
            self._payload = None
            return None
        self._plain = self.chunks = chunks
        if chunks.ended:
            self._end_plain()
            content.feed_eof()
        return content

    def _content(self) -> StreamReader:
        content = self._payload = StreamReader(self, self._read_bufsize, loop=self._loop)
        content.on_eof(self._drop_timeout)
        return content

    def _read_plain(
        self,
        plain: PlainChunks | int,
        content: StreamReader,
        data: bytes,
        receiver: Receiver | None,
    ) -> None:
        self._heard_s = self._loop.time()
        if isinstance(plain, PlainChunks):
            unread = self._read_chunks(plain, content, data, receiver)
            ended = plain.ended
        elif len(data) <= plain:
            content.feed_data(data)
            self._plain, unread, ended = plain - len(data), b"", len(data) == plain
        else:
            unread, ended = data, False
        if unread:
            self._go_on_parsing(unread)
        elif ended:
            self._end_plain()
            content.feed_eof()
        if receiver is not None and (content._buffer or content._http_chunk_splits or unread):
            receiver.arrived()
        self._hold_back()

    def _read_chunks(
        self, chunks: PlainChunks, content: StreamReader, data: bytes, receiver: Receiver | None
    ) -> bytes:
        """What is not plain of a segment; the rest is handed over, or held by the content."""
        if (whole := chunks.read_whole(data)) is None:
            return _fill_parts(content, chunks, data)
        pieces, lengths = whole
        if receiver is None or not receiver.take(pieces, lengths, chunks.size):
            before = chunks.size - sum(lengths)
            _fill(content, chunks, pieces, [before + each for each in accumulate(lengths)])
        return b""

    def _hold_back(self) -> None:
        """Read no more for now, where a plain body comes faster than it is taken."""
        content = self._payload
        if self._plain is None or content is None:
            return
        ends = content._http_chunk_splits
        if content._size > content._high_water or (
            ends is not None and len(ends) > content._high_water_chunks
        ):
            self.pause_reading()

    def _end_plain(self) -> None:
        self._plain = None
        self._idle = True
        self._drop_timeout()

    def _go_on_parsing(self, data: bytes) -> None:
        """Have aiohttp's parser read on where the plain part of a body has ended."""
        plain, content = self._plain, cast(StreamReader, self._payload)
        self._plain = None
        self._parse()
        if isinstance(plain, PlainChunks):
            begin = b"Transfer-Encoding: chunked\r\n\r\n"
            if plain.left is not None:
                # One byte more, which is there: a chunk of none would be the last one.
                begin += b"%x\r\n." % (plain.left + 1)
            content.total_bytes = plain.size
        else:
            begin = b"Content-Length: %d\r\n\r\n" % (plain or 0)
        ((_, parsed),), _, _ = cast("HttpResponseParser", self._parser).feed_data(
            _STATUS_LINE + begin
        )
        # Whoever reads has the content that was begun.
        parsed.__class__ = _Continued
        parsed._timer = cast("BaseTimerContext", content)
        if data:
            super().data_received(data)
            self._fail_content()

    def _parse(self) -> None:
        """Have aiohttp's parser read from here on."""
        self._asked = False
        self.set_response_params(
            skip_payload=self._skip_payload,
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=self._read_timeout,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
        )

    # Each segment would cancel a timer and start another one, and each response too.

    def _reschedule_timeout(self) -> None:
        self._heard_s = self._loop.time()
        if self._read_timeout_handle is None:
            super()._reschedule_timeout()

    def _drop_timeout(self) -> None:
        self._heard_s = math.inf

    def _on_read_timeout(self) -> None:
        self._read_timeout_handle = None
        left = self._heard_s + (self._read_timeout or 0) - self._loop.time()
        if left == math.inf:
            return
        if left > 0:
            self._read_timeout_handle = self._loop.call_later(left, self._on_read_timeout)
        else:
            super()._on_read_timeout()

    def _cancel_timer(self) -> None:
        if self._read_timeout_handle is not None:
            self._read_timeout_handle.cancel()
            self._read_timeout_handle = None


def _fill_parts(content: StreamReader, chunks: PlainChunks, data: bytes) -> bytes:
    """What is not plain of a segment that has parts of chunks; the content holds the rest."""
    pieces, ends, unread = chunks.read(data)
    _fill(content, chunks, pieces, ends)
    return unread


def _fill(content: StreamReader, chunks: PlainChunks, pieces: list[bytes], ends: list[int]) -> None:
    """Fill the content with pieces of chunks, and where these end, as aiohttp's parser does."""
    content._buffer.extend(pieces)
    cast("deque[int]", content._http_chunk_splits).extend(ends)
    content._size += sum(map(len, pieces))
    content.total_bytes = chunks.size
    if (waiter := content._waiter) is not None and (pieces or ends):
        content._waiter = None
        if not waiter.done():
            waiter.set_result(None)


def watch(protocol: ResponseHandler) -> None:
    """Have a new connection remember how it ended."""
    if (lost := protocol.closed) is not None:
        # An error that is not read would be logged by the event loop.
        lost.add_done_callback(lost_by_error)


def lost_by_error(lost: "asyncio.Future[None]") -> bool:
    """Whether an error ended it; reading that keeps the event loop from logging it as unread."""
    return not lost.cancelled() and lost.exception() is not None


def give_back(connection: Connection, upload: "asyncio.Task[None] | None") -> None:
    """Give the connection back, or close it where the response or its request is not at its end."""
    if (protocol := connection.protocol) is not None:
        cast(UpstreamConnection, protocol).forget_receiver()
    if upload is not None and not upload.done():
        upload.cancel()
        connection.close()
    else:
        connection.release()
