"""Between aiohttp and the core: read a request whole, write an answer's very bytes.

Answers are serialised here and not by the library, which would add fields of its own and silently
drop octets that are not UTF-8. Framing is always made anew: recorded framing is never replayed.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_exceptions import HTTPException

from tapeway.body_files import BodyBuffer
from tapeway.core.http import headers
from tapeway.core.matching.body_digest import largest_in_memory
from tapeway.core.model.control import Outcome
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Headers, Response, ResponseHead
from tapeway.core.streams.pacing import AT_ONCE, scale_retry_after
from tapeway.errors import RequestError

_BODILESS = frozenset({204, 304})
_JOIN_BELOW = 256 * 1024
"""Smaller answers leave in one write; larger ones are not copied to be joined to their head."""

LAST_CHUNK = b"0\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


MOST_PREPARED = 256
"""Answers whose bytes are remembered; beyond that all are forgotten."""

LARGEST_PREPARED = 64 * 1024
"""Larger answers are serialised anew: at most 16 MiB are kept for this."""
_Variant = tuple[int, bool, tuple[int, int], bool]


class WireResponse(web.StreamResponse):
    """An answer as bytes. Aborts the connection instead of ending it when it is cut short."""

    def __init__(self, pieces: Iterable[bytes], *, keep_alive: bool) -> None:
        # The library's own state (cookies, header map) is never used, so it is not set up.
        self._pieces = pieces
        self._stays = keep_alive
        self._to: web.BaseRequest | None = None

    @property
    def keep_alive(self) -> bool:
        # Asked when the answer is out: the client may have finished sending meanwhile.
        ended = self._to is not None and getattr(self._to.protocol, "ended", False)
        return self._stays and not ended

    async def prepare(self, request: web.BaseRequest) -> None:
        self._to = request

    async def write_eof(self, data: bytes = b"") -> None:
        if self._to is None:
            raise RuntimeError("written before it was prepared")
        writer = self._to.writer
        for piece in self._pieces:
            await writer.write(piece)
        await writer.drain()


def arrived(raw: web.BaseRequest, max_body: int) -> bytes | None:
    """The body if all of it came with the head, else None. Raises RequestError (413)."""
    if not raw.content.is_eof():
        return None
    body = raw.content.read_nowait(-1)
    if len(body) > max_body:
        raise _too_large(max_body)
    return body


async def read_body(
    raw: web.BaseRequest, *, max_body: int, idle_s: float, scratch: str | None
) -> bytes | BodyFile:
    """The whole body as it comes, answering `Expect: 100-continue` first; a large one in a file.

    Raises RequestError: 413 beyond `max_body`, 408 when nothing comes for `idle_s` seconds or the
    whole takes twenty times that, 400 for broken framing.
    """
    content = raw.content
    if (raw.content_length or 0) > max_body:
        raise _too_large(max_body)
    if raw.version >= (1, 1) and headers.request_fields(raw.raw_headers).expect and raw.transport:
        raw.transport.write(_CONTINUE)
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
            "the request's body did not come in time", status=408, code="request_timeout"
        ) from None
    except (HTTPException, HttpProcessingError, web.RequestPayloadError):
        raise RequestError("the request's body is not framed as it says") from None
    except ConnectionError:
        raise RequestError("the client left before its request ended") from None
    return await intake.finish()


def serialise(
    response: Response, extra: Headers, *, method: str, version: tuple[int, int], keep_alive: bool
) -> list[bytes]:
    """The bytes of an answer to a client of this version, in as few pieces as are sensible."""
    head = _head(response.head, extra, version, keep_alive=keep_alive)
    body = _framed(response, head, method=method, chunked=version >= (1, 1))
    head.append(b"\r\n")
    if sum(map(len, body)) < _JOIN_BELOW:
        return [b"".join(head + body)]
    return [b"".join(head), *body]


def _framed(response: Response, head: list[bytes], *, method: str, chunked: bool) -> list[bytes]:
    if method == "HEAD" or response.status in _BODILESS:
        return []
    if response.status == 205:
        head.append(b"Content-Length: 0\r\n")
        return []
    if chunked and response.head.framing != "length":
        head.append(b"Transfer-Encoding: chunked\r\n")
        return [*map(chunk, (each.data for each in response.chunks)), LAST_CHUNK]
    body = [each.data for each in response.chunks]
    head.append(b"Content-Length: %d\r\n" % sum(map(len, body)))
    return body


def outcome_headers(outcome: Outcome, cassette: str, index: int | None) -> Headers:
    """The fields that say where an answer came from."""
    fields = ((b"Tapeway-Outcome", outcome.encode()), (b"Tapeway-Cassette", cassette.encode()))
    if index is None:
        return fields
    return (*fields, (b"Tapeway-Interaction", b"%d" % index))


class PreparedReplays:
    """Serialises replays, and remembers the bytes of the last ones."""

    def __init__(self) -> None:
        self._prepared: dict[_Variant, tuple[Interaction, list[bytes]]] = {}

    def pieces(
        self,
        interaction: Interaction,
        cassette: str,
        *,
        method: str,
        version: tuple[int, int],
        keep_alive: bool,
    ) -> list[bytes] | None:
        """The bytes of a recorded answer for this kind of request.

        None where it has a Location, since what that must say depends on the request, and for a
        large body.
        """
        variant = (id(interaction), method == "HEAD", version, keep_alive)
        known = self._prepared.get(variant)
        # An id may be given out again; holding the interaction shows that it was not.
        if known is not None and known[0] is interaction:
            return known[1]
        response = interaction.response
        if (
            headers.find_header(response.headers, b"location") is not None
            or response.file is not None
        ):
            return None
        head = scale_retry_after(response.head, AT_ONCE)
        pieces = serialise(
            response if head is response.head else replace(response, head=head),
            outcome_headers("replayed", cassette, interaction.index),
            method=method,
            version=version,
            keep_alive=keep_alive,
        )
        if sum(map(len, pieces)) <= LARGEST_PREPARED:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            self._prepared[variant] = (interaction, pieces)
        return pieces


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a body goes out that is passed on as it comes; an empty `last` needs no end."""

    head: bytes
    piece: Callable[[bytes], bytes]
    last: bytes = b""


def begin(
    head: ResponseHead,
    extra: Headers,
    *,
    method: str,
    version: tuple[int, int],
    keep_alive: bool,
) -> Delivery:
    """The head of an answer whose body follows as it comes, and how that is framed."""
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
    return Delivery(b"".join([*lines, b"\r\n"]), piece, last)


def authorities(raw: web.BaseRequest) -> tuple[str, ...]:
    """What this listener is called by who connects to it; a Host header may say anything."""
    if raw.transport is None:
        return ()
    address, port = raw.transport.get_extra_info("sockname")[:2]
    host = f"[{address}]" if ":" in address else address
    names = (f"{host}:{port}", f"localhost:{port}")
    return (*names, host, "localhost") if port == 80 else names


def origin(raw: web.BaseRequest) -> str:
    """The listener's own address as a URL, as it looks from where the client connected."""
    host, *_ = authorities(raw) or ("",)
    return f"http://{host}"


def break_off(raw: web.BaseRequest) -> None:
    """End a client's connection in the middle of an answer, so that it cannot pass for whole."""
    transport = raw.transport
    if transport is None:
        return
    if raw.version < (1, 1):
        # Without chunks an end in good order would be the body's end; a reset is none.
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
    lines += [b"%b: %b\r\n" % pair for pair in (*head.headers, *extra)]
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
