"""Runs the admin application, and answers malformed HTTP itself.

aiohttp's own response and log line would repeat the malformed line, token included.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest

from tapeway.admin.app import GUARD
from tapeway.admin.auth import AdminGuard, unauthorized
from tapeway.admin.responses import error_response, internal_error
from tapeway.admin.routes import TABLE
from tapeway.errors import AdminError, TapewayError, describe

log = logging.getLogger(__name__)

MAX_LINE = 16 * 1024
MAX_FIELD = 32 * 1024
MAX_FIELDS = 128
KEEPALIVE_S = 75.0
_LINGER_S = 2.0

_METHODS = ", ".join(sorted({"HEAD", *(operation.method for operation in TABLE)}))


class AdminConnection(RequestHandler):
    """The connection of one caller."""

    __slots__ = ("_gone", "_guard", "_refused")

    def __init__(self, server: web.Server, guard: AdminGuard, **options: Any) -> None:
        super().__init__(server, **options)
        self._guard = guard
        self._refused = False
        self._gone = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._gone.set()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError | ConnectionError):
            log.error("an admin call failed: %s", describe(exc) if exc else status)
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun and cannot become an error")
        error = _error_for(exc, self._guard)
        response = error_response(error, "", {"Allow": _METHODS} if error.status == 405 else None)
        response.force_close()
        self._refused = True
        return response

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        finished = await super().finish_response(request, resp, start_time)
        if self._refused:
            await self._linger()
        return finished

    async def _linger(self) -> None:
        # Closing while the caller still sends would reset the connection and lose the response.
        if self.transport is not None and self.transport.can_write_eof():
            self.transport.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self._gone.wait()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        exc = kw.get("exc_info")
        log.error("an admin connection failed: %s", describe(exc) if exc else "unknown")


class AdminServer(web.Server):
    """An application's server, but that its connections are each an AdminConnection."""

    def __init__(self, application: web.Server, guard: AdminGuard) -> None:
        super().__init__(application.request_handler)
        self._application = application
        self._guard = guard

    def __call__(self) -> AdminConnection:
        return AdminConnection(
            self._application,
            self._guard,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=_LINGER_S,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
        )

    def pre_shutdown(self) -> None:
        self._application.pre_shutdown()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's own
        await self._application.shutdown(timeout)


class AdminRunner(web.AppRunner):
    """Runs an application of `make_application`."""

    __slots__ = ()

    @property
    def server(self) -> web.Server | None:
        application = super().server
        return None if application is None else AdminServer(application, self.app[GUARD])


def _error_for(exc: BaseException | None, guard: AdminGuard) -> TapewayError:
    if isinstance(exc, LineTooLong) and exc.args[1] != MAX_LINE and guard.locked:
        # The headers, and so the token, cannot be read: the response is as without a token.
        return unauthorized()
    if isinstance(exc, LineTooLong):
        return AdminError(
            "the request line or a header is too long", status=431, code="header_too_large"
        )
    if isinstance(exc, BadHttpMethod):
        return AdminError(
            "no path takes this method: the Allow header lists the methods in use",
            status=405,
            code="method_not_allowed",
        )
    if isinstance(exc, HttpProcessingError):
        return AdminError("the request is not well-formed HTTP/1.1")
    return internal_error()
