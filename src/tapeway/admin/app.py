"""The admin listener as an aiohttp application, for whoever has a socket to mount it on."""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tapeway.admin.auth import AdminGuard, HostList, WrongTokens
from tapeway.admin.context import Census, HandlerContext
from tapeway.admin.errors import SHIELD, allowed, of_library, refuse
from tapeway.admin.instances import Alone, Instances
from tapeway.admin.metrics import Metrics
from tapeway.admin.openapi import document
from tapeway.admin.operation import Operation
from tapeway.admin.request_body import MAX_BODY
from tapeway.admin.routes import TABLE
from tapeway.core.json_text import dump
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.errors import AdminError, TapewayError, describe
from tapeway.stores.remote.loop_guard import HEADER, HOPS, MOST

log = logging.getLogger(__name__)

GUARD = web.AppKey("guard", AdminGuard)

_ALIVE = "/healthz"
"""It speaks of this process alone, and waits for no other."""

_PUBLIC = frozenset(each.path for each in TABLE if each.public)


def make_application(
    broker: Broker,
    journal: RequestJournal,
    instances: Instances | None = None,
    *,
    token: str | None,
    listener: tuple[str, int],
    version: str,
    hosts: Collection[str] = (),
    clock: Callable[[], float] = time.monotonic,
    new_id: Callable[[], str] = lambda: f"tw-admin-{uuid.uuid4().hex[:12]}",
    heartbeat_s: float = 15.0,
) -> web.Application:
    """The API on this broker, as it is called on this listener or by these further host names.

    `instances` are the processes that serve, where the broker's own is not the only one.

    Raises ConfigError where other machines could reach it and there is no token.
    """
    guard = AdminGuard(HostList.of(listener[0], hosts), token, WrongTokens(clock))
    instances = instances or Alone(broker)
    console = HandlerContext(
        broker=broker,
        journal=journal,
        version=version,
        metrics=Metrics(broker, instances, version),
        census=Census(),
        openapi=dump(document(TABLE, version, locked=guard.locked)),
        heartbeat_s=heartbeat_s,
        instances=instances,
    )
    application = web.Application(middlewares=[_outermost(guard, new_id)], client_max_size=MAX_BODY)
    application[GUARD] = guard
    application.on_response_prepare.append(_shield)
    application.on_shutdown.append(_ending(journal))
    _add_routes(application, console)
    return application


def _outermost(guard: AdminGuard, new_id: Callable[[], str]) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            guard.check(request, public=request.rel_url.raw_path in _PUBLIC)
            _count_hop(request)
            return await handler(request)
        except web.HTTPException as exc:
            return refuse(of_library(exc), new_id(), allowed(exc))
        except TapewayError as exc:
            # A refused token is told in the same words each time, whatever was wrong with it.
            return refuse(exc, "" if exc.status == 401 else new_id())
        except ConnectionError:
            raise
        except Exception as exc:
            log.error("an admin call failed: %s", describe(exc))
            return refuse(TapewayError("tapeway failed to answer; its log says where"), new_id())

    return answer


def _count_hop(request: web.Request) -> None:
    """Raises AdminError (508) for a call that goes from store to store in a circle."""
    said = request.headers.get(HEADER, "0")
    hops = int(said) if said.isascii() and said.isdigit() and len(said) < 4 else 0
    if hops > MOST:
        raise AdminError(
            "this call went through too many stores: does one lead back to another?",
            status=508,
            code="store_loop",
        )
    HOPS.set(hops)


def _add_routes(application: web.Application, console: HandlerContext) -> None:
    resources: dict[str, web.Resource] = {}
    for each in TABLE:
        if (resource := resources.get(each.path)) is None:
            resource = resources[each.path] = application.router.add_resource(each.path)
        for method in ("GET", "HEAD") if each.method == "GET" else (each.method,):
            resource.add_route(method, _handler(each, console), expect_handler=_expect)
    # Last, so that it takes what no row takes.
    rest = application.router.add_resource("/{rest:.*}")
    rest.add_route("*", _nowhere(list(resources.values())), expect_handler=_expect)


def _handler(
    each: Operation, console: HandlerContext
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(request: web.Request) -> web.StreamResponse:
        if each.path != _ALIVE:
            await console.instances.gather()
        return await each.serve(console, request)

    return serve


def _nowhere(
    resources: list[web.Resource],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def nowhere(request: web.Request) -> web.StreamResponse:
        methods: set[str] = set()
        for each in resources:
            methods |= (await each.resolve(request))[1]
        if methods:
            raise web.HTTPMethodNotAllowed(request.method, sorted(methods))
        raise web.HTTPNotFound

    return nowhere


async def _expect(request: web.Request) -> None:
    """Nothing yet: the library would ask for a body before the guard has looked."""


async def _shield(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SHIELD)


def _ending(journal: RequestJournal) -> Callable[[web.Application], Awaitable[None]]:
    async def end(application: web.Application) -> None:
        journal.close()

    return end
