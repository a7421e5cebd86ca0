"""A client's connection: aiohttp's, with any method allowed and errors that repeat no input."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import StreamReader
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, LineTooLong
from aiohttp.http_parser import HttpRequestParser
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_server import Server

from tapeway.descriptors import descriptor_limit, descriptors_kept_back, descriptors_left
from tapeway.errors import RequestError, StoreAway, describe, forget_frames
from tapeway.server.error_responses import last_response, malformed_request_response
from tapeway.server.fast_path import ANSWERED, FastPath, Taken
from tapeway.server.parser import BAD_VERSION, HeaderTooLarge, Parser, RequestParser
from tapeway.server.wire import ClientRequest, PlainRequest, WireResponse

log = logging.getLogger(__name__)

MAX_LINE = 16 * 1024
MAX_FIELD = 32 * 1024
MAX_FIELDS = 128
MAX_HEADER = 128 * 1024
"""For all header fields together: parsed headers are cached, and must not fill the memory."""
KEEPALIVE_S = 75.0
BODY_S = 0.02
"""How long a head waits for its body outside of the parser, which has its own time limits."""
SEND_S = 30.0
"""How long a client may take nothing of a response, by default."""

_TURNS = 8
"""Turns of the event loop in which aiohttp's task is expected to wait again, with some to spare."""
_REFUSAL_S = 1.0
_LOOKS = 5
_WARN_S = 60.0

_TOO_MANY = "Too many headers received"


_Handler = Callable[[ClientRequest], Awaitable[WireResponse]]


class ClientConnection(RequestHandler):
    """One client's connection."""

    __slots__ = (
        *("_body_timer", "_fast_path", "_finished", "_head", "_requests", "_send_s", "_watching"),
        *("_broken", "_counted", "_ended_early", "_later", "_serving", "lost", "uncounted"),
        "unread",
    )

    def __init__(
        self,
        server: Server,
        *,
        loop: asyncio.AbstractEventLoop,
        send_s: float = SEND_S,
        fast_path: FastPath | None = None,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type] # None switches it off; the stub forgets it
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_S,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
        )
        self._requests = RequestParser(
            cast(Parser, self._parser),
            queue=self._max_msg_queue_size,
            max_header=MAX_HEADER,
        )
        self._parser = cast(HttpRequestParser, self._requests)
        self._fast_path = fast_path
        self._head = b""
        """A whole head that waits for its body, for a moment."""
        self._body_timer: asyncio.TimerHandle | None = None
        self._counted = b""
        """A request whose answer comes once the store has counted it."""
        self._serving: asyncio.Task[None] | None = None
        """Handles a plain request."""
        self._later = b""
        """What came after the one or the other."""
        self.uncounted: StoreAway | None = None
        """Why it is not known whether the store counted the request that is parsed next."""
        self._ended_early = False
        """Whether the client finished sending meanwhile."""
        self._finished = False
        self._send_s = send_s
        self._watching: asyncio.TimerHandle | None = None
        self.lost = asyncio.Event()
        self.unread: StreamReader | None = None
        """A body that was refused, and whose rest is read and discarded."""
        self._broken: BaseException | None = None
        """Why the body of the last request did not come whole."""

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 # its own name
        # aiohttp reads the rest of a body for ten seconds, so that its sender gets the response.
        if self.unread is not None:
            self.unread.set_exception(RequestPayloadError())
        serving = self._serving
        await super().shutdown(timeout)
        if serving is not None:
            serving.cancel()

    async def start(self) -> None:
        try:
            await super().start()
        finally:
            # What a connection still holds when it is closed is sent however long that takes.
            if self.transport is not None:
                self._watch(self.transport)
            self._forget_readers()

    def force_close(self) -> None:
        if self.transport is not None:
            self._watch(self.transport)
        super().force_close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.transport is not None:
            self._watch(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _watch(
        self, transport: asyncio.Transport, before: int | None = None, idle: int = 0
    ) -> None:
        """Let go of a client that takes nothing of what is to be sent; looks some times meanwhile."""
        if self._watching is not None and before is None:
            return
        unsent = transport.get_write_buffer_size()
        idle = 0 if before is None or unsent < before else idle + 1
        if not unsent or self.lost.is_set():
            self._watching = None
        elif idle == _LOOKS:
            log.info("a client took nothing of a response for %g s: it is let go", self._send_s)
            transport.abort()
        else:
            self._watching = self._loop.call_later(
                self._send_s / _LOOKS, self._watch, transport, unsent, idle
            )

    def connection_lost(self, exc: BaseException | None) -> None:
        self._take_head()
        self.lost.set()
        content = self._requests.content
        super().connection_lost(exc)
        self._requests.close()
        self.unread = None
        self._broken = None if content is None else content.exception()
        self._forget_readers()

    def _forget_readers(self) -> None:
        """Let go of those who read a body that did not come whole, and had a part of it in a file.

        They are in the error, which the body has, which they have. It is raised before the connection
        is lost, or because it is.
        """
        if self._broken is not None:
            forget_frames(self._broken)

    @property
    def ended(self) -> bool:
        """Whether the client has finished sending and every request is being handled."""
        return self._finished and not self._messages and not self._requests.holds_message

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp never stays half open
        # Some clients shut down their sending side after the last request and keep reading. What
        # they began and did not finish is no request; those before it are answered.
        if self._is_busy:
            self._ended_early = True
            return True
        self._parse_head()
        self._finished = self._request_count > 0 and (self._waiter is None or self._waiter.done())
        self._requests.end_input()
        return self._finished

    def data_received(self, data: bytes) -> None:
        fast_path, waiter = self._fast_path, self._waiter
        if self._counted or self._serving is not None:
            self._keep_for_later(data)
            return
        if self._later or (waiter is None and fast_path is not None and self._will_wait):
            if not self._later:
                self._loop.call_soon(self._take_later, 1)
            self._later += data
            return
        if (
            fast_path is None
            or (waiter is None or waiter.done())
            or self._paused
            or not (self._requests.rested or self._requests.at_rest)
        ):
            self._parse(data)
            return
        whole = self._head + data
        taken = fast_path.answer(whole, self)
        if taken is ANSWERED:
            return
        if taken is Taken.COUNTING:
            self._take_head()
            self._counted = whole
            self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_S
        elif taken is Taken.NOT_TAKEN or self._head:
            if (request := fast_path.request(whole, self)) is None:
                self._parse(data)
            else:
                self._take_head()
                self._serve(request)
        else:
            self._head = data
            self._body_timer = self._loop.call_later(BODY_S, self._parse_head)

    def send_answer(self, answer: bytes) -> None:
        """Write an answer to the request that came last."""
        if self.transport is not None:
            self.transport.write(answer)
        self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_S
        if self._head:
            self._take_head()

    @property
    def _is_busy(self) -> bool:
        """Whether input waits for what comes before it, outside of aiohttp."""
        return bool(self._counted or self._later) or self._serving is not None

    @property
    def _will_wait(self) -> bool:
        """Whether aiohttp's task is about to wait for a request: on a new connection, or after one."""
        return not (self._request_in_progress or self._messages or self._close or self._force_close)

    def _take_later(self, turn: int) -> None:
        """Take what came before aiohttp's task waited for it. That takes it a turn or two."""
        if self._waiter is None and self._will_wait and turn < _TURNS:
            self._loop.call_soon(self._take_later, turn + 1)
            return
        later, self._later = self._later, b""
        if self.transport is None:
            return
        if self._waiter is None:
            self._parse(later)
            later = b""
        self._go_on(self.transport, later)

    def _keep_for_later(self, data: bytes) -> None:
        self._later += data
        if self.transport is not None:
            self.transport.pause_reading()

    def take_uncounted(self) -> StoreAway:
        """The error to give to the request that is handled; it concerns no later one."""
        assert self.uncounted is not None  # noqa: S101 - the caller looked
        error, self.uncounted = self.uncounted, None
        return error

    def give_counted(self, answer: bytes | StoreAway | None) -> None:
        """Give the answer that the store counted, and go on; otherwise the request is parsed."""
        request, self._counted = self._counted, b""
        later, self._later = self._later, b""
        if self.transport is None:
            return
        if isinstance(answer, bytes):
            self.send_answer(answer)
        else:
            self.uncounted = answer
            self._parse(request)
        self._go_on(self.transport, later)

    def _go_on(self, transport: asyncio.Transport, later: bytes) -> None:
        """Take what came meanwhile."""
        if later:
            transport.resume_reading()
            self.data_received(later)
        # Not before the answer to the last request.
        if self._ended_early and not self._is_busy:
            self._ended_early = False
            if not self.eof_received() and self.transport is not None:
                self.transport.close()

    def _serve(self, request: PlainRequest) -> None:
        """Have the proxy answer a plain request; aiohttp's own handler waits for other ones."""
        self._request_count += 1
        self._request_in_progress = True
        if self._manager is not None:
            self._manager.requests_count += 1
        self._serving = self._loop.create_task(self._respond(request))

    async def _respond(self, request: PlainRequest) -> None:
        keep_alive = False
        try:
            response = await self._response_to(request)
            await response.prepare(request)
            await response.write_eof()
            keep_alive = bool(response.keep_alive)
        except ConnectionError:
            log.debug("a client left before it had its response")
        finally:
            self._responded(keep_alive=keep_alive)

    async def _response_to(self, request: PlainRequest) -> WireResponse:
        handler = cast(_Handler, self._request_handler)
        try:
            return await handler(request)
        except Exception as exc:
            return self.handle_error(request, 500, exc)

    def _responded(self, *, keep_alive: bool) -> None:
        self._serving, self._request_in_progress = None, False
        if self._handler_waiter is not None:
            self._handler_waiter.set_result(None)
        later, self._later = self._later, b""
        if (transport := self.transport) is None:
            return
        if self._close or self._force_close or not keep_alive:
            self._watch(transport)
            transport.close()
            return
        self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_S
        self._go_on(transport, later)

    def _process_keepalive(self) -> None:
        if self._serving is not None:
            # Its answer may take as long as the upstream does.
            self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_S
        super()._process_keepalive()

    def _take_head(self) -> bytes:
        """The head that waits for its body, if one does; it waits no more."""
        head, self._head = self._head, b""
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        return head

    def _parse_head(self) -> None:
        if self._head:
            self._parse(b"")

    def _parse(self, data: bytes) -> None:
        """Take the ordinary path: aiohttp parses what has come."""
        super().data_received(self._take_head() + data if self._head else data)
        if self._requests.overdue:
            super().data_received(b"")
        if self._finished:
            self._requests.end_input()

    def handle_error(
        self,
        request: ClientRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> WireResponse:
        # aiohttp's error page and log line would repeat the malformed line, API key included.
        if not isinstance(exc, HttpProcessingError):
            log.error("a request failed: %s", describe(exc) if exc else status)
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun and cannot become an error")
        return malformed_request_response(_error_for(exc))

    def log_exception(self, *args: Any, **kw: Any) -> None:
        exc = kw.get("exc_info")
        if isinstance(exc, RequestPayloadError):
            # It concerns the rest of a body that was refused already.
            return
        log.error("a connection failed: %s", describe(exc) if exc else "unknown")


class RefusedConnection(asyncio.Protocol):
    """The connection of a client for whom no file descriptor is left: a 503, and the end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if descriptors_left() < descriptors_kept_back() // 2:
            self._transport.abort()
        else:
            asyncio.get_running_loop().call_later(_REFUSAL_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        # Not before it has sent something: what it sends to a closed connection resets it, and it
        # never reads the response.
        if not self._transport.is_closing():
            refused = RequestError(
                "tapeway has as many open connections as it may have files open: close some, or allow "
                "more (ulimit -n)",
                status=503,
                code="too_many_connections",
            )
            self._transport.writelines(last_response(refused))
            self._transport.close()


class ProxyServer(Server):
    """aiohttp's low-level server with ClientConnection as its protocol."""

    _warned_at = -math.inf

    def __init__(
        self, handler: _Handler, send_s: float = SEND_S, fast_path: FastPath | None = None
    ) -> None:
        """`send_s` is how many seconds a client may take nothing of its response."""
        super().__init__(handler)
        self._send_s = send_s
        self._fast_path = fast_path

    def __call__(self) -> ClientConnection | RefusedConnection:  # type: ignore[override] # or another
        if descriptors_left() < descriptors_kept_back():
            self._warn()
            return RefusedConnection()
        return ClientConnection(
            self, loop=self._loop, send_s=self._send_s, fast_path=self._fast_path
        )

    def _warn(self) -> None:
        if (now := self._loop.time()) - self._warned_at >= _WARN_S:
            self._warned_at = now
            log.warning(
                "clients are refused with 503: only %d of %d open files are left, kept back for the "
                "admin API; allow more (ulimit -n)",
                descriptors_left(),
                descriptor_limit(),
            )


def _error_for(exc: BaseException | None) -> RequestError:
    if not isinstance(exc, HttpProcessingError):
        return RequestError(
            "tapeway failed to respond; its log says where", status=500, code="internal"
        )
    if isinstance(exc, LineTooLong):
        return _too_long(exc)
    if isinstance(exc, HeaderTooLarge):
        return RequestError(
            f"the request's header is longer than {MAX_HEADER} bytes",
            status=431,
            code="header_too_large",
        )
    if exc.message == _TOO_MANY:
        return RequestError(
            f"the request has more than {MAX_FIELDS} headers", status=431, code="too_many_headers"
        )
    # After these prefixes the messages quote the request.
    if isinstance(exc, BadStatusLine) and exc.message.startswith(BAD_VERSION):
        return RequestError(
            "only HTTP/1.0 and HTTP/1.1 are supported", status=505, code="http_version"
        )
    return RequestError("the request is not well-formed HTTP/1.1")


def _too_long(exc: LineTooLong) -> RequestError:
    if exc.args[1] == MAX_LINE:
        return RequestError(
            f"the request line is longer than {MAX_LINE} bytes", status=414, code="uri_too_long"
        )
    return RequestError(
        f"a header is longer than {MAX_FIELD} bytes", status=431, code="header_too_large"
    )
