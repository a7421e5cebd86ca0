"""The front owns the connection of each client, and answers plain hits.

aiohttp's `RequestHandler` answers everything else, one request at a time. The front feeds it the
bytes of one request, waits for the answer, and feeds the next. Requests before a malformed one are
therefore answered, and aiohttp alone judges syntax. The front looks after the connection:
idle clients, unfinished heads, slow readers, half-closed connections and the drain.
"""

import asyncio
import logging
import math
import re
import secrets
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, cast

from aiohttp import hdrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_server import Server

from tapeway.core.http.chunks import ChunkedBody, MalformedChunks
from tapeway.core.matching.key import KeyAndBody
from tapeway.core.model.client_login import ClientLogin
from tapeway.descriptors import descriptor_limit, descriptors_kept_back, descriptors_left
from tapeway.engine.open_streams import Signal
from tapeway.errors import RequestError, StoreAway, describe, forget_frames
from tapeway.server.error_responses import last_response
from tapeway.server.hits import COUNTING, Hits
from tapeway.server.messages import ClientRequest, Handle, WireResponse, client_address
from tapeway.server.plain_heads import HEAD_END, read_plain_head

log = logging.getLogger(__name__)

MAX_LINE = 16 * 1024
MAX_FIELD = 32 * 1024
MAX_FIELDS = 128
MAX_HEADER = 128 * 1024
"""For all header fields together."""
IDLE_S = 75.0
"""How long a client may be silent between two requests."""
HEAD_S = 30.0
"""How long a head may take to come, in all."""
BODY_S = 0.02
"""How long a plain head waits for its body. Then aiohttp gets both, with aiohttp's limits."""
LINGER_S = 10.0
"""How long a client may take to read why its input was refused."""
SEND_S = 30.0
"""How long a client may take nothing of a response, by default."""

_NEVER_S = 1e8
"""aiohttp closes no idle connection: aiohttp does not see the requests that the front answers."""
_READ_AHEAD = 256 * 1024
"""The limit of input that waits for an earlier request; beyond it, reading pauses."""
_REFUSAL_S = 1.0
_LOOKS = 5
_WARN_S = 60.0
_STOP_S = 0.01

_TOO_MANY = "Too many headers received"
_BAD_VERSION = "Bad status line:\n  Invalid HTTP version"
"""The beginning of aiohttp's message about an unknown version of HTTP."""
_MAX_LENGTH = 2**63 - 1
"""aiohttp's parser takes its largest number for no length at all."""

_NO_METHOD = "UNKNOWN"
"""The method of aiohttp's message for refused input."""
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_MAX_METHOD = 64
_AS_THEY_ARE = frozenset(
    {b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT"}
)
"""The methods that aiohttp's parser gets. The parser does not know every token; `POST` stands for
an unknown token, since the parser reads both alike.
"""
_NO_TEXT = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)")
"""What no head may have."""
_SIMPLE_REQUEST = re.compile(rb"[A-Za-z]{1,64} [^ \r\n]{1,16384}+\r?\n")
"""The only line of HTTP/0.9. Without a refusal such a client would wait for ever."""
_HTTP_2 = b"PRI * HTTP/2.0\r\n"


class _State(Enum):
    """What a connection waits for."""

    AT_REST = auto()
    """The next request."""
    READ = auto()
    """aiohttp's word on a head: how its body is framed."""
    IN_BODY = auto()
    """The rest of a body."""
    ANSWERING = auto()
    """The answer to a complete request."""
    REFUSED = auto()
    """The answer to input that was refused; what still comes is dropped."""
    DISCARDING = auto()
    """The client to read that answer."""
    GIVEN = auto()
    """Nothing: aiohttp has the connection for good, since it is no longer HTTP/1.1."""
    OVER = auto()
    """Nothing: it is closed."""


# In Python 3.11 each look-up of a member by its name is a call.
_AT_REST, _READ, _IN_BODY, _ANSWERING, _REFUSED, _DISCARDING, _GIVEN, _OVER = _State

_DEAF = (_REFUSED, _DISCARDING, _OVER)

Refused = Callable[[RequestError, str], str]


class Front(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_begun",
        "_body_left",
        "_body_timer",
        "_broken",
        "_chunks",
        "_content",
        "_counted",
        "_ending",
        "_finished",
        "_hits",
        "_inner",
        "_is_held",
        "_loop",
        "_rest",
        "_rested",
        "_server",
        "_state",
        "_timer",
        "_transport",
        "_watching",
        "answer_began",
        "client_address",
        "keyed",
        "left",
        "login",
        "lost",
        "malformed",
        "method",
        "uncounted",
        "writing_paused",
    )

    def __init__(self, server: "FrontServer") -> None:
        self._server = server
        self._hits = server.hits
        self._loop = server.loop
        self._transport: asyncio.Transport | None = None
        self._inner: Handler | None = None
        self._state = _AT_REST
        self._rest = b""
        """Input that aiohttp was not given yet."""
        self._body_left = 0
        self._chunks: ChunkedBody | None = None
        self._broken: BaseException | None = None
        """Why the body of the last request did not come whole."""
        self._content: StreamReader | None = None
        """The body of the request that aiohttp was given last."""
        self._rested = self._begun = 0.0
        """When the last answer ended, and when the first byte of a head came."""
        self._timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._is_held = False
        """Whether reading is stopped because too much waits."""
        self._finished = False
        """Whether the client has finished sending."""
        self._ending = False
        self.client_address = ""
        self.method: str | None = None
        """The request's method, if aiohttp's parser was given a substitute."""
        self.keyed: KeyAndBody | None = None
        """The match key of that request, where the front looked for a hit."""
        self._counted = b""
        """The request while the store counts the hit."""
        self.uncounted: StoreAway | None = None
        """Why it is not known whether the store counted the request in aiohttp's hands."""
        self.malformed = False
        """Whether aiohttp would misunderstand the request's framing."""
        self.answer_began = False
        self.writing_paused = False
        self.left = Signal()
        """Set once the connection is lost, or its client has finished sending."""
        self.login = ClientLogin(secrets.token_hex)
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is lost."""

    # The connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.client_address = client_address(transport)
        self._server.fronts.add(self)
        self._rested = self._loop.time()
        self._timer = self._loop.call_later(IDLE_S, self._check_idleness)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._body_timer, self._watching):
            if timer is not None:
                timer.cancel()
        self._transport, self._state, self._rest = None, _OVER, b""
        # The handler refers to the front, which must not be freed by a collector of cycles.
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(exc)
        content, self._content = self._content, None
        if content is not None and not content.is_eof() and content.exception() is None:
            # Who still reads it waits for nothing.
            content.set_exception(RequestPayloadError("the client left"))
        self._broken = None if content is None else content.exception()
        self.forget_readers()
        if not self.lost.done():
            self.lost.set_result(None)
        self.left.set()
        self.login.end()
        self._server.gone(self)

    def pause_writing(self) -> None:
        self.writing_paused = True
        if self._inner is not None:
            self._inner.pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self._inner is not None:
            self._inner.resume_writing()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _close(self) -> None:
        """Close the connection once all that was written is sent, and be told if nothing is taken."""
        self._state, self._rest = _OVER, b""
        if self._transport is not None:
            self._transport.close()
            self._watch()

    def _watch(self, before: int | None = None, idle: int = 0) -> None:
        """Close a client that stops reading its answer. Checks several times within the limit."""
        if self._transport is None or (self._watching is not None and before is None):
            return
        unsent = self._transport.get_write_buffer_size()
        idle = 0 if before is None or unsent < before else idle + 1
        self._watching = None
        if not unsent:
            return
        send_s = self._server.send_s
        if idle == _LOOKS:
            log.info("a client took nothing of a response for %g s: it is let go", send_s)
            self._transport.abort()
            return
        self._watching = self._loop.call_later(send_s / _LOOKS, self._watch, unsent, idle)

    def _check_idleness(self) -> None:
        """Close the connection of a client without a request, or with an unfinished head."""
        now = self._loop.time()
        due = now + IDLE_S
        if self._state is _READ or (self._state is _AT_REST and self._rest):
            due = self._begun + HEAD_S
        elif self._state is _AT_REST:
            due = self._rested + IDLE_S
        if due <= now:
            self._close()
            return
        self._timer = self._loop.call_at(due, self._check_idleness)

    def _time_head(self) -> None:
        """A head has begun, and is to end in time."""
        if self._begun:
            return
        self._begun = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(HEAD_S, self._check_idleness)

    # Input.

    def data_received(self, data: bytes) -> None:
        if self._state in _DEAF:
            return
        self._rest = self._rest + data if self._rest else data
        self._pump()

    def eof_received(self) -> bool:
        # Some clients shut down their sending side after the last request and go on reading. An
        # unfinished request counts as none; complete requests before that are answered.
        self._finished = True
        self.left.set()
        if self._state is _GIVEN:
            return False
        self._pump()
        self._fail_unfinished()
        # TLS knows no half-closed connection.
        may_answer = self._transport is not None and self._transport.can_write_eof()
        return may_answer and self._state in (_READ, _ANSWERING, _REFUSED)

    def _pump(self) -> None:
        """Go on with the input as far as that is possible now."""
        while self._rest:
            state = self._state
            if state is _AT_REST:
                if not self._begin():
                    return
            elif state is _IN_BODY:
                self._go_on_in_body()
            elif state is _GIVEN:
                rest, self._rest = self._rest, b""
                self._feed(rest)
            else:
                if len(self._rest) > _READ_AHEAD and self._transport is not None:
                    self._is_held = True
                    self._transport.pause_reading()
                return

    def _read_on(self) -> None:
        """Read again, and go on with the input. aiohttp pauses and resumes the reading too."""
        if self._is_held and self._transport is not None:
            self._is_held = False
            self._transport.resume_reading()
        self._pump()

    def _begin(self) -> bool:
        """Begin with the next request; False while the request is incomplete."""
        data, hits = self._rest, self._hits
        head = None if hits is None else read_plain_head(data)
        if head is None or hits is None:
            return self._begin_unplain(data)
        length, rest = head.length, head.rest
        if length > len(rest):
            if self._finished or not hits.may_answer(head):
                return self._begin_unplain(data)
            if self._body_timer is None:
                self._body_timer = self._loop.call_later(BODY_S, self._give_up_waiting)
            return False
        if self._body_timer is not None:
            self._end_wait()
        if length == len(rest):
            self._rest = b""
        else:
            self._rest, rest, data = rest[length:], rest[:length], data[: length - len(rest)]
        if not (self.writing_paused or self.login.id):
            answer = hits.answer(head, rest, self.give_counted, self.client_address)
            if isinstance(answer, bytes):
                self._answer(answer)
                return True
            if answer is COUNTING:
                self._state, self._counted = _ANSWERING, data
                return True
            self.keyed = answer
        self._state = _ANSWERING
        self._feed(data)
        return True

    def _answer(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)
        self._rested = self._loop.time()

    def give_counted(self, answer: bytes | StoreAway | None) -> None:
        """Take the answer that the store counted; without one the request is aiohttp's."""
        whole, self._counted = self._counted, b""
        if self._transport is None:
            return
        if isinstance(answer, bytes):
            self._answer(answer)
            self._next()
        else:
            self.uncounted = answer
            self._feed(whole)

    def _begin_unplain(self, data: bytes) -> bool:
        """Give aiohttp a head that is not plain, once the head is complete or cannot be a head."""
        self._end_wait()
        if data.startswith(b"\r\n"):
            # A server ignores empty lines before a request (RFC 9112 section 2.2).
            self._rest = data = data[_EMPTY_LINES.match(data).end() :]  # type: ignore[union-attr] # it always matches
        end = data.find(HEAD_END) + len(HEAD_END)
        is_whole = end >= len(HEAD_END)
        if data.startswith(_HTTP_2):
            self._server.warn_of_http_2()
            self._refuse(_http_2())
        elif _SIMPLE_REQUEST.match(data):
            self._refuse(_bad_version())
        elif not is_whole and _may_be_head(data):
            self._time_head()
            return False
        elif (end if is_whole else len(data)) > MAX_HEADER:
            self._refuse(_header_too_large())
        else:
            self._state = _READ
            piece, self._rest = (data[:end], data[end:]) if is_whole else (data, b"")
            self._feed(self._known_to_parser(piece))
        return True

    def _known_to_parser(self, head: bytes) -> bytes:
        """A head with a method that aiohttp's parser knows."""
        method, space, rest = head.partition(b" ")
        if _METHOD.fullmatch(method) is None or not space:
            return head
        self.method = method.decode()
        return head if method in _AS_THEY_ARE else b"POST " + rest

    def _give_up_waiting(self) -> None:
        """The body of a plain head is late: aiohttp waits for it."""
        self._body_timer = None
        if self._state is _AT_REST and self._rest:
            self._begin_unplain(self._rest)
            self._pump()

    def _end_wait(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _go_on_in_body(self) -> None:
        data = self._rest
        if self._chunks is None:
            end = min(self._body_left, len(data))
            self._body_left -= end
            ended = not self._body_left
        else:
            try:
                end = self._chunks.take(data)
            except MalformedChunks:
                self._fail_body("broken framing")
                return
            ended = self._chunks.ended
        piece, self._rest = data[:end], data[end:]
        if ended:
            self._state = _ANSWERING
        self._feed(piece)
        if ended and self._chunks is not None:
            self._check_end()

    def _check_end(self) -> None:
        """Fail a body that aiohttp found malformed: the input ended, the body did not."""
        content, transport = self._content, self._transport
        if content is None or transport is None or content.is_eof() or not transport.is_reading():
            return
        self._fail_body("broken framing")

    def _fail_unfinished(self) -> None:
        """Fail the body that the client left unfinished."""
        if self._state is _IN_BODY:
            self._fail_body("the client has finished sending")

    def _fail_body(self, why: str) -> None:
        self._state, self._rest = _REFUSED, b""
        if self._content is not None and not self._content.is_eof():
            self._content.set_exception(RequestPayloadError(why))

    # aiohttp's side.

    def _feed(self, data: bytes) -> None:
        """Give aiohttp what comes next."""
        if self._transport is None:
            return
        if self._inner is None:
            self._inner = self._server.make_handler(self)
            self._inner.connection_made(self._transport)
            if self.writing_paused:
                self._inner.pause_writing()
        self._inner.data_received(data)

    def head_read(self, message: RawRequestMessage, content: StreamReader) -> None:
        """aiohttp has read a head, and tells how the body is framed; or it has refused the input."""
        self._content, self.answer_began, self._begun = content, False, 0.0
        if message.method == _NO_METHOD:
            self._state, self._rest = _REFUSED, b""
            return
        if self._state is not _READ:
            # A plain request came whole.
            return
        length = int(message.headers.get(hdrs.CONTENT_LENGTH, 0))
        self.malformed = length > _MAX_LENGTH
        self._chunks, self._body_left = ChunkedBody() if message.chunked else None, length
        if self.malformed:
            self._state, self._rest = _REFUSED, b""
        elif message.upgrade and message.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
            self._state = _GIVEN
        elif message.chunked or length:
            self._state = _IN_BODY
        else:
            self._state = _ANSWERING
        self._read_on()
        if self._finished:
            self._fail_unfinished()

    def answered(self, *, keep_alive: bool) -> None:
        """The answer to the request in aiohttp's hands is written."""
        if self._state is not _ANSWERING:
            self._linger()
            return
        if not keep_alive:
            self._close()
            return
        self._rested = self._loop.time()
        self._next()

    def _next(self) -> None:
        """Go on with the next request, or end the connection."""
        self._state, self.method, self.keyed, self.uncounted = _AT_REST, None, None, None
        if self._rest:
            self._read_on()
        if (self._finished or self._ending) and self._state is _AT_REST:
            self._close()

    def refusal(self, error: RequestError) -> list[bytes]:
        """The bytes of the answer to input that is no request."""
        return self._server.refusal(error, self.client_address)

    def _refuse(self, error: RequestError) -> None:
        """Answer input that aiohttp is not given, and close the connection."""
        if self._transport is not None:
            self._transport.write(b"".join(self.refusal(error)))
        self._linger()

    def _linger(self) -> None:
        """Close the connection once the client did, or after some time.

        A close before the client has sent everything would reset the connection, and with it the
        answer that the client has not read yet.
        """
        transport = self._transport
        # A TLS transport waits for the client while it closes.
        if transport is None or self._finished or self._ending or not transport.can_write_eof():
            self._close()
            return
        self._state, self._rest = _DISCARDING, b""
        if not transport.is_closing():
            transport.resume_reading()
            try:
                transport.write_eof()
            except OSError:
                # The client has reset the connection.
                self._close()
                return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_S, self._close)
        self._watch()

    def end(self) -> None:
        """Close the connection now if no request is being answered, or else after its answer."""
        self._ending = True
        if self._body_timer is not None:
            # A request has begun: the client gets a reason.
            self._end_wait()
            self._give_up_waiting()
        if self._state in (_AT_REST, _DISCARDING):
            self._close()

    def forget_readers(self) -> None:
        """Drop the references to readers of an incomplete body.

        The body holds the error, and the traceback of the error holds the readers.
        """
        error = self._broken if self._content is None else self._content.exception()
        if error is not None:
            forget_frames(error)

    async def abort(self) -> None:
        """End the connection, and the handler of its request."""
        if self._inner is not None:
            await self._inner.shutdown(_STOP_S)
        if self._transport is not None:
            self._transport.abort()


class Handler(RequestHandler):
    """aiohttp's side of a connection, with errors that repeat no input."""

    __slots__ = ("_is_paused", "front")

    def __init__(self, server: Server, front: Front) -> None:
        self.front = front
        self._is_paused = False
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # None switches it off; the stub forgets it
            auto_decompress=False,
            keepalive_timeout=_NEVER_S,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
        )

    async def start(self) -> None:
        try:
            await super().start()
        except (AssertionError, TypeError):
            # With a lost connection aiohttp loses the state that its next turn needs.
            if not self.front.lost.done():
                raise
        finally:
            self.front.forget_readers()

    def pause_reading(self) -> None:
        self._is_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp calls this for each read of a body, and would feed its parser nothing each time.
        if self._is_paused:
            self._is_paused = False
            super().resume_reading(resume_parser)

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> WireResponse:
        # aiohttp's error page and log line would repeat the malformed line, API key included.
        if not isinstance(exc, HttpProcessingError):
            log.error("a request failed: %s", describe(exc) if exc else status)
        if self.front.answer_began:
            raise ConnectionError("the response has begun and cannot become an error")
        return WireResponse(self.front.refusal(_error_for(exc)), keep_alive=False)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        exc = kw.get("exc_info")
        if isinstance(exc, RequestPayloadError):
            # The error is about the rest of a body that was refused already.
            return
        log.error("a connection failed: %s", describe(exc) if exc else "unknown")


class RefusedConnection(asyncio.Protocol):
    """The connection of a client for whom no file descriptor is left: a 503, and the end."""

    def __init__(self, server: "FrontServer") -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._client_address = client_address(transport)
        if descriptors_left() < descriptors_kept_back() // 2:
            self._transport.abort()
        else:
            asyncio.get_running_loop().call_later(_REFUSAL_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        # Not before the client has sent something: bytes to a closed connection reset the
        # connection, and the client never reads the response.
        if not self._transport.is_closing():
            refused = RequestError(
                "tapeway has as many open connections as it may have files open: close some, or allow "
                "more (ulimit -n)",
                status=503,
                code="too_many_connections",
            )
            self._transport.writelines(self._server.refusal(refused, self._client_address))
            self._transport.close()


class FrontServer:
    """Makes a front for each client: the event loop's protocol factory."""

    _warned_at = _told_of_http_2_at = -math.inf

    def __init__(
        self,
        handle: Handle,
        send_s: float = SEND_S,
        hits: Hits | None = None,
        refused: Refused = lambda *_: "tw-0",
    ) -> None:
        """`send_s` is how many seconds a client may take nothing of its response. `refused` gets
        the error for input that is no request, with the client's address, and returns the
        id of that answer.
        """
        self.loop = asyncio.get_running_loop()
        self.send_s = send_s
        self.hits = hits
        self._refused = refused
        self.fronts: set[Front] = set()
        self._handle = handle
        self._one_less = asyncio.Event()
        self._server = Server(self._answer, request_factory=_made)  # type: ignore[arg-type] # narrower

    def __call__(self) -> asyncio.Protocol:
        if descriptors_left() < descriptors_kept_back():
            self._warn()
            return RefusedConnection(self)
        return Front(self)

    def refusal(self, error: RequestError, client_address: str) -> list[bytes]:
        """The bytes of the answer to input that is no request; they close the connection."""
        return last_response(error, self._refused(error, client_address))

    def make_handler(self, front: Front) -> Handler:
        """aiohttp's side of a connection."""
        return Handler(self._server, front)

    def gone(self, front: Front) -> None:
        """A connection is lost."""
        self.fronts.discard(front)
        self._one_less.set()

    def pre_shutdown(self) -> None:
        """Close idle connections at once, and busy connections after their answer."""
        for front in list(self.fronts):
            front.end()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 # aiohttp's name
        """Wait until all connections have ended; abort late connections."""
        self.pre_shutdown()
        try:
            async with asyncio.timeout(timeout):
                while self.fronts:
                    self._one_less.clear()
                    await self._one_less.wait()
        except TimeoutError:
            await asyncio.gather(*[front.abort() for front in self.fronts])

    async def _answer(self, request: ClientRequest) -> WireResponse:
        front = cast(Front, request.connection)
        if front.malformed:
            return WireResponse(front.refusal(_malformed()), keep_alive=False)
        return await self._handle(request)

    def warn_of_http_2(self) -> None:
        """Warn at most once a minute of a client that speaks HTTP/2."""
        if (now := self.loop.time()) - self._told_of_http_2_at >= _WARN_S:
            self._told_of_http_2_at = now
            log.warning("a client speaks HTTP/2 without TLS and gets 505: have it speak HTTP/1.1")

    def _warn(self) -> None:
        if (now := self.loop.time()) - self._warned_at >= _WARN_S:
            self._warned_at = now
            log.warning(
                "clients are refused with 503: only %d of %d open files are left, kept back for the "
                "admin API; allow more (ulimit -n)",
                descriptors_left(),
                descriptor_limit(),
            )


def _may_be_head(data: bytes) -> bool:
    """Whether this may be the beginning of a head, as far as aiohttp's parser would say by now."""
    space = data.find(b" ", 0, _MAX_METHOD + 1)
    if space < 0:
        return data in (b"", b"\r") or _METHOD.fullmatch(data) is not None
    start = data.rfind(b"\n") + 1
    too_long = len(data) - start > (MAX_FIELD if start else MAX_LINE) + _MAX_METHOD
    return not (too_long or len(data) > MAX_HEADER or _NO_TEXT.search(data))


def _made(
    message: RawRequestMessage,
    content: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> ClientRequest:
    front = cast(Handler, protocol).front
    front.head_read(message, content)
    return ClientRequest(message, content, protocol, writer, task, front)


def _error_for(exc: BaseException | None) -> RequestError:
    if not isinstance(exc, HttpProcessingError):
        return RequestError(
            "tapeway failed to respond; its log says where", status=500, code="internal"
        )
    if isinstance(exc, LineTooLong):
        return _too_long(exc)
    if exc.message == _TOO_MANY:
        return RequestError(
            f"the request has more than {MAX_FIELDS} headers", status=431, code="too_many_headers"
        )
    # After these prefixes the messages quote the request.
    if isinstance(exc, BadStatusLine) and exc.message.startswith(_BAD_VERSION):
        return _bad_version()
    return _malformed()


def _malformed() -> RequestError:
    return RequestError("the request is not well-formed HTTP/1.1")


def _bad_version() -> RequestError:
    return RequestError("only HTTP/1.0 and HTTP/1.1 are supported", status=505, code="http_version")


def _http_2() -> RequestError:
    return RequestError(
        "tapeway speaks HTTP/1.0 and HTTP/1.1, and no HTTP/2: have the client speak HTTP/1.1",
        status=505,
        code="http_version",
    )


def _header_too_large() -> RequestError:
    return RequestError(
        f"the request's header is longer than {MAX_HEADER} bytes",
        status=431,
        code="header_too_large",
    )


def _too_long(exc: LineTooLong) -> RequestError:
    if exc.args[1] == MAX_LINE:
        return RequestError(
            f"the request line is longer than {MAX_LINE} bytes", status=414, code="uri_too_long"
        )
    return RequestError(
        f"a header is longer than {MAX_FIELD} bytes", status=431, code="header_too_large"
    )
