"""The admin API as an aiohttp application."""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tapeway.admin.auth import AdminGuard, GuessLimiter
from tapeway.admin.context import HandlerContext, InteractionCounts
from tapeway.admin.handlers.status import is_page, page_file
from tapeway.admin.openapi import document
from tapeway.admin.operation import Operation
from tapeway.admin.request_body import MAX_BODY
from tapeway.admin.responses import (
    SECURITY_HEADERS,
    allow_header,
    error_response,
    from_http_exception,
    internal_error,
)
from tapeway.admin.routes import TABLE
from tapeway.core.json_text import dump
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.errors import AdminError, TapewayError, describe
from tapeway.inspection.known import KnownCassettes
from tapeway.version import VERSION_HEADER

if TYPE_CHECKING:
    from tapeway.admin.metrics import Metrics

log = logging.getLogger(__name__)

GUARD = web.AppKey("guard", AdminGuard)

_LONGEST_VERSION = 40


def make_application(
    broker: Broker,
    journal: RequestJournal,
    *,
    token: str | None,
    listener: tuple[str, int],
    version: str,
    proxy: str = "",
    named_routes: Sequence[str] = (),
    record_command: str | None = None,
    certificate: str | None = None,
    hosts: Collection[str] = (),
    clock: Callable[[], float] = time.monotonic,
    heartbeat_s: float = 15.0,
    operations: Sequence[Operation] = TABLE,
) -> web.Application:
    """The admin API of this broker.

    The application takes calls whose Host names `listener` or one of `hosts`. `proxy` is the URL of
    the proxy, `named_routes` are the routes named in the settings, `record_command` is the option,
    and `certificate` is the file of the listener's certificate, if any.

    Raises ConfigError if other machines could reach the listener and there is no token.
    """
    described = [operation for operation in operations if not operation.for_page]
    guard = AdminGuard(listener[0], token, GuessLimiter(clock), hosts)
    context = HandlerContext(
        broker=broker,
        journal=journal,
        version=version,
        proxy=proxy,
        named_routes=named_routes,
        record_command=record_command,
        certificate=certificate,
        metrics=cache(lambda: _metrics(broker, version)),
        counts=InteractionCounts(),
        known=KnownCassettes(),
        # Made at the first call: it takes a tenth of the time of a start.
        openapi=cache(lambda: dump(document(described, version, locked=guard.locked))),
        heartbeat_s=heartbeat_s,
    )
    public = frozenset(operation.path for operation in operations if operation.public)
    application = web.Application(
        middlewares=[_guard_and_translate_errors(guard, public, version)], client_max_size=MAX_BODY
    )
    application[GUARD] = guard
    application.on_response_prepare.append(_add_security_headers)
    application.on_shutdown.append(_close(journal))
    _add_routes(application, operations, context)
    return application


def _guard_and_translate_errors(
    guard: AdminGuard, public: Collection[str], version: str
) -> Middleware:
    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            page = is_page(request)
            guard.check(request, public=page or request.rel_url.raw_path in public, page=page)
            _check_store(request, version)
            return await handler(request)
        except web.HTTPException as exc:
            return error_response(from_http_exception(exc), _new_id(), allow_header(exc))
        except TapewayError as exc:
            # The same response, whatever was wrong with the token.
            return error_response(exc, "" if exc.status == 401 else _new_id())
        except ConnectionError:
            raise
        except Exception as exc:
            log.error("an admin call failed: %s", describe(exc))
            return error_response(internal_error(), _new_id())

    return guarded


def _new_id() -> str:
    return f"tw-admin-{uuid.uuid4().hex[:12]}"


def _check_store(request: web.Request, version: str) -> None:
    """Raise AdminError (409) for a call from a tapeway of another version with its store here."""
    theirs = request.headers.get(VERSION_HEADER, version)
    if theirs != version:
        raise AdminError(
            f"this tapeway has version {version}, but the calling tapeway has version "
            f"{theirs[:_LONGEST_VERSION]!r}: run the same version on both sides",
            status=409,
            code="store_version",
        )


def _metrics(broker: Broker, version: str) -> "Metrics":
    # When they are first asked for: the client library of Prometheus takes a while to import.
    from tapeway.admin.metrics import Metrics

    return Metrics(broker, version)


def _add_routes(
    application: web.Application, operations: Sequence[Operation], context: HandlerContext
) -> None:
    resources: dict[str, web.Resource] = {}
    for operation in operations:
        if (resource := resources.get(operation.path)) is None:
            resource = resources[operation.path] = application.router.add_resource(operation.path)
        for method in ("GET", "HEAD") if operation.method == "GET" else (operation.method,):
            resource.add_route(method, _handler(operation, context), expect_handler=_expect)
    # The page is no part of the API: its files are in no table.
    resource = resources["/web"] = application.router.add_resource("/web/{file:.+}")
    for method in ("GET", "HEAD"):
        resource.add_route(method, page_file, expect_handler=_expect)
    # Last: only paths without an operation come here.
    rest = application.router.add_resource("/{rest:.*}")
    rest.add_route("*", _not_found(list(resources.values())), expect_handler=_expect)


def _handler(
    operation: Operation, context: HandlerContext
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(request: web.Request) -> web.StreamResponse:
        return await operation.serve(context, request)

    return serve


def _not_found(
    resources: list[web.Resource],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def not_found(request: web.Request) -> web.StreamResponse:
        methods: set[str] = set()
        for resource in resources:
            methods |= (await resource.resolve(request))[1]
        if methods:
            raise web.HTTPMethodNotAllowed(request.method, sorted(methods))
        raise web.HTTPNotFound

    return not_found


async def _expect(request: web.Request) -> None:
    """Send no `100 Continue` yet: aiohttp would ask for the body before the guard has checked."""


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    # The policy of the page lets in files of the page; no other response has a policy.
    own = response.headers.get("Content-Security-Policy")
    response.headers.update(SECURITY_HEADERS)
    if own is not None:
        response.headers["Content-Security-Policy"] = own


def _close(journal: RequestJournal) -> Callable[[web.Application], Awaitable[None]]:
    async def close(application: web.Application) -> None:
        journal.close()

    return close
