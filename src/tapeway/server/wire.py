"""Plain requests as the proxy handles them, bodies of others, and responses byte for byte.

Responses are serialised here because aiohttp would add headers of its own and silently drop bytes
that are not UTF-8. Framing is made for each client: recorded framing is never replayed.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiohttp import HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_writer import StreamWriter
from aiohttp.web_exceptions import HTTPException
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse

from tapeway.body_files import BodyBuffer
from tapeway.core.http import headers
from tapeway.core.http.chunks import LAST_CHUNK, size_line
from tapeway.core.http.routing import RequestAddress
from tapeway.core.matching.body_digest import largest_in_memory
from tapeway.core.matching.key import KeyAndBody
from tapeway.core.model.control import Outcome
from tapeway.core.model.messages import BodyFile, Headers, Response, ResponseHead
from tapeway.errors import RequestError
from tapeway.loop_guard import Interim

_BODILESS = frozenset({204, 304})
_JOIN_BELOW = 256 * 1024
"""Smaller responses are sent in one write; larger ones are not copied to join head and body."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n"


class WholeBody:
    """A body of which nothing is still to come."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def is_eof(self) -> bool:
        return True

    def read_nowait(self, n: int = -1) -> bytes:
        return self._data


class PlainRequest:
    """A request that arrived whole, handled without aiohttp's parser, request and handler task.

    The fast path read and routed its head, and no recording answers it there. Its connection stays
    open for the next one.
    """

    __slots__ = (
        *("_writer", "address", "content", "method", "protocol"),
        *("keyed", "raw_headers", "raw_path"),
    )

    version = HttpVersion11
    keep_alive = True

    def __init__(
        self,
        protocol: RequestHandler,
        method: str,
        target: str,
        headers: Headers,
        address: RequestAddress,
        body: bytes,
        keyed: KeyAndBody | None = None,
    ) -> None:
        """`keyed` is its match key without rules and its body as JSON, where both are known."""
        self.protocol = protocol
        self.method = method
        self.raw_path = target
        self.raw_headers = headers
        self.address = address
        self.content = WholeBody(body)
        self.keyed = keyed
        self._writer: StreamWriter | None = None

    @property
    def transport(self) -> asyncio.Transport | None:
        return self.protocol.transport

    @property
    def writer(self) -> StreamWriter:
        """Writes the answer as fast as the client takes it."""
        if self._writer is None:
            self._writer = StreamWriter(self.protocol, asyncio.get_running_loop())
        return self._writer


ClientRequest = BaseRequest | PlainRequest
"""A client's request, as the proxy handles it."""


class WireResponse(StreamResponse):
    """A response as bytes, in place of aiohttp's own serialisation."""

    def __init__(self, pieces: Iterable[bytes], *, keep_alive: bool) -> None:
        # aiohttp's own state (cookies, header map) is never used, so it is not set up.
        self._pieces = pieces
        self._may_keep_alive = keep_alive
        self._request: ClientRequest | None = None

    @property
    def keep_alive(self) -> bool:
        # Read after the response was sent: the client may have finished sending meanwhile.
        ended = self._request is not None and getattr(self._request.protocol, "ended", False)
        return self._may_keep_alive and not ended

    async def prepare(self, request: ClientRequest) -> None:
        self._request = request

    async def write_eof(self, data: bytes = b"") -> None:
        if (request := self._request) is None:
            raise RuntimeError("written before it was prepared")
        # As aiohttp's writer would: there may be none yet, and most responses are one piece.
        for piece in filter(None, self._pieces):
            if (transport := request.transport) is None or transport.is_closing():
                raise ConnectionResetError("the client's connection is closed")
            transport.write(piece)
            if request.protocol._paused:
                await request.protocol._drain_helper()


def buffered_body(raw: ClientRequest, max_body: int) -> bytes | None:
    """The body if all of it is here already, else None. Raises RequestError (413)."""
    if not raw.content.is_eof():
        return None
    body = raw.content.read_nowait(-1)
    if len(body) > max_body:
        raise _too_large(max_body)
    return body


def interim_sender(raw: ClientRequest) -> Interim:
    """Sends the client an interim response with ids of tapeways; one of HTTP/1.0 knows none."""

    def send(ids: bytes) -> None:
        if raw.version >= (1, 1) and raw.transport is not None:
            raw.transport.write(b"%sTapeway-Hops: %s\r\n\r\n" % (_CONTINUE, ids))

    return send


async def read_body(
    raw: BaseRequest, *, max_body: int, idle_s: float, scratch: str | None
) -> bytes | BodyFile:
    """Wait for the whole body, after `100 Continue` if expected; a large one is stored in a file.

    Raises RequestError: 413 beyond `max_body`, 408 when nothing comes for `idle_s` seconds or the
    whole takes twenty times that, 400 for broken framing.
    """
    content = raw.content
    if (raw.content_length or 0) > max_body:
        raise _too_large(max_body)
    if raw.version >= (1, 1) and headers.request_fields(raw.raw_headers).expect and raw.transport:
        raw.transport.write(_CONTINUE + b"\r\n")
    intake = BodyBuffer(largest_in_memory(raw.raw_headers), scratch)
    try:
        async with asyncio.timeout(20 * idle_s):
            while not content.at_eof():
                async with asyncio.timeout(idle_s):
                    piece = await content.readany()
                if intake.size + len(piece) > max_body:
                    raise _too_large(max_body)
                await intake.add(piece)
    except TimeoutError:
        raise RequestError(
            "the request's body did not arrive in time", status=408, code="request_timeout"
        ) from None
    except (HTTPException, HttpProcessingError, RequestPayloadError):
        raise RequestError(
            "the request's body does not match its Content-Length or chunks"
        ) from None
    except ConnectionError:
        raise RequestError("the client left before its request ended") from None
    return await intake.finish()


def serialise(
    response: Response,
    extra: Headers,
    *,
    method: str,
    version: tuple[int, int],
    keep_alive: bool,
) -> list[bytes]:
    """The bytes of a response to a client of this HTTP version, in one piece if it is small."""
    head, body = _serialised(response, extra, method, version, keep_alive=keep_alive)
    if sum(map(len, body)) < _JOIN_BELOW:
        return [b"".join([head, *body])]
    return [head, *body]


def serialise_parts(response: Response, extra: Headers) -> tuple[bytes, bytes]:
    """Head and framed body of a response to a GET or POST on an HTTP/1.1 connection that stays open.

    The body of a response with a length is the recorded one, not copied.
    """
    head, body = _serialised(response, extra, "GET", (1, 1), keep_alive=True)
    return head, b"".join(body)


def _serialised(
    response: Response,
    extra: Headers,
    method: str,
    version: tuple[int, int],
    *,
    keep_alive: bool,
) -> tuple[bytes, list[bytes]]:
    head = _head(response.head, extra, version, keep_alive=keep_alive)
    body = _framed(response, head, method=method, chunked=version >= (1, 1))
    head.append(b"\r\n")
    return b"".join(head), body


def _framed(response: Response, head: list[bytes], *, method: str, chunked: bool) -> list[bytes]:
    if method == "HEAD" or response.status in _BODILESS:
        return []
    if response.status == 205:
        head.append(b"Content-Length: 0\r\n")
        return []
    if chunked and response.head.framing != "length":
        head.append(b"Transfer-Encoding: chunked\r\n")
        # In one piece: each further one is counted and written by itself.
        lengths = response.arrivals().lengths
        parts = [LAST_CHUNK] * (2 * len(lengths) + 1)
        parts[:-1:2] = map(size_line, lengths)
        parts[1::2] = response.pieces()
        return [b"\r\n".join(parts)]
    head.append(b"Content-Length: %d\r\n" % len(response.body))
    return [response.body]


def outcome_headers(outcome: Outcome, cassette: str, index: int | None) -> Headers:
    """The headers that say where a response came from."""
    fields = ((b"Tapeway-Outcome", outcome.encode()), (b"Tapeway-Cassette", cassette.encode()))
    if index is None:
        return fields
    return (*fields, (b"Tapeway-Interaction", b"%d" % index))


@dataclass(frozen=True, slots=True)
class StreamFraming:
    """How to send a body as it arrives: the head, the framing of each piece, and the end if any."""

    head: bytes
    piece: Callable[[bytes], bytes]
    last: bytes = b""


def frame_stream(
    head: ResponseHead,
    extra: Headers,
    *,
    method: str,
    version: tuple[int, int],
    keep_alive: bool,
) -> StreamFraming:
    """The head of a response whose body is sent as it arrives, and the framing of that body."""
    lines = _head(head, extra, version, keep_alive=keep_alive)
    piece, last = _unframed, b""
    if method == "HEAD" or head.status in _BODILESS:
        piece = _nothing
    elif head.status == 205:
        lines.append(b"Content-Length: 0\r\n")
        piece = _nothing
    elif head.length is not None:
        lines.append(b"Content-Length: %d\r\n" % head.length)
    elif version >= (1, 1):
        lines.append(b"Transfer-Encoding: chunked\r\n")
        piece, last = chunk, LAST_CHUNK
    return StreamFraming(b"".join([*lines, b"\r\n"]), piece, last)


def authorities(raw: ClientRequest) -> tuple[str, ...]:
    """Host and port of this connection's own end, in all spellings; a Host header could lie."""
    if raw.transport is None:
        return ()
    address, port = raw.transport.get_extra_info("sockname")[:2]
    host = f"[{address}]" if ":" in address else address
    names = (f"{host}:{port}", f"localhost:{port}")
    return (*names, host, "localhost") if port == 80 else names


def origin(raw: ClientRequest) -> str:
    """The URL of the listener, with the address that the client connected to."""
    host, *_ = authorities(raw) or ("",)
    return f"http://{host}"


def abort_connection(raw: ClientRequest) -> None:
    """Abort a connection within a response, so that the response does not look complete."""
    transport = raw.transport
    if transport is None:
        return
    if raw.version < (1, 1):
        # Without chunks an orderly close would end the body; a reset does not.
        found: socket.socket = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def chunk(data: bytes) -> bytes:
    """One HTTP chunk; nothing for no data, since an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _head(
    head: ResponseHead, extra: Headers, version: tuple[int, int], *, keep_alive: bool
) -> list[bytes]:
    reason = head.reason.encode("utf-8", "surrogateescape")
    lines = [b"HTTP/1.1 %d %b\r\n" % (head.status, reason)]
    if fields := (*head.headers, *extra):
        # Joining takes a third of the time that formatting takes.
        lines += [b"\r\n".join(map(b": ".join, fields)), b"\r\n"]
    if version < (1, 1) and keep_alive:
        lines.append(b"Connection: keep-alive\r\n")
    elif version >= (1, 1) and not keep_alive:
        lines.append(b"Connection: close\r\n")
    return lines


def _unframed(data: bytes) -> bytes:
    return data


def _nothing(data: bytes) -> bytes:
    return data[:0]


def _too_large(max_body: int) -> RequestError:
    return RequestError(
        f"the request's body is larger than --max-body ({max_body} bytes)",
        status=413,
        code="request_too_large",
    )
