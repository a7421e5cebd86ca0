"""Status, health, readiness, metrics, the page, and where the API and its description are."""

import asyncio

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.control import own_modes
from tapeway.admin.models.control import (
    Clients,
    Counts,
    Health,
    Index,
    LoadedCassette,
    Readiness,
    ReadinessQuery,
    Status,
    StoreStatus,
    UpstreamConnections,
)
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.responses import json_response
from tapeway.engine.broker import Broker
from tapeway.engine.cassettes.context import CassetteCounts
from tapeway.errors import Draining, StoreAway, StoreError, StorePoisoned
from tapeway.settings.client_environment import clients_of
from tapeway.web.files import CONTENT_SECURITY_POLICY, START, page_files


async def status(context: HandlerContext, call: PlainCall) -> Status:
    """Version, mode, store, counters, and the loaded cassettes."""
    broker, responder = context.broker, context.broker.recorder.responder
    # For thousands of cassettes this takes tens of milliseconds.
    loaded = await asyncio.to_thread(_listed, broker, await broker.source.counts())
    return Status(
        version=context.version,
        mode=broker.mode,
        cassette=broker.active,
        store=StoreStatus(url=broker.store.url, durability=broker.store.facts.durability),
        takes=broker.takes,
        upstream_connections=responder.connections,
        open_connections=UpstreamConnections(**responder.open_connections._asdict()),
        in_flight=broker.in_flight,
        counts=Counts.model_validate(dict(broker.journal.counts)),
        cassettes=loaded,
        own_modes=own_modes(broker),
    )


async def clients(context: HandlerContext, call: PlainCall) -> Clients:
    """The proxy's URL, and how to point SDKs there: variables, base URLs, names of keys."""
    found = clients_of(
        context.broker.routes, context.named_routes, context.proxy, context.record_command
    )
    return Clients(**found)


def _listed(broker: Broker, loaded: list[CassetteCounts]) -> list[LoadedCassette]:
    return [
        LoadedCassette(
            name=cassette.name,
            mode=broker.mode_of(cassette.name),
            interactions=cassette.interactions,
            unused=cassette.unused,
        )
        for cassette in loaded
    ]


async def healthz(context: HandlerContext, call: PlainCall) -> Health:
    """Liveness: the process responds."""
    return Health()


async def readyz(
    context: HandlerContext, call: OperationCall[ReadinessQuery, Nothing]
) -> Readiness:
    """Readiness: it is not stopping, and the store serves and can record what is asked."""
    broker = context.broker
    if broker.draining:
        raise Draining("tapeway is stopping")
    if (unreadable := await broker.read_error()) is not None:
        raise _unready(unreadable, "store_unreadable")
    if (unwritable := await broker.write_error(record=call.query.record)) is not None:
        raise _unready(unwritable, "store_unwritable")
    return Readiness()


def _unready(error: StoreError, code: str) -> StoreError:
    """The error with its own code where that says what is wrong with the whole store."""
    if isinstance(error, StoreAway | StorePoisoned):
        code = error.code
    return StoreError(error.message, status=503, code=code)


async def index(context: HandlerContext, call: PlainCall) -> Index | web.Response:
    """For browsers the web page, otherwise the paths of the API and of its OpenAPI document."""
    if is_page(call.request):
        return _page_response(START)
    return Index(
        name="tapeway",
        version=context.version,
        api="/api/v1/status",
        openapi="/openapi.json",
    )


def is_page(request: web.Request) -> bool:
    """Whether a request is for the page or a file of the page: they hold no data and need no token."""
    path = request.rel_url.raw_path
    if request.method not in ("GET", "HEAD"):
        return False
    if path == "/":
        return any("text/html" in accept.lower() for accept in request.headers.getall("Accept", []))
    return path.startswith("/web/")


async def page_file(request: web.Request) -> web.Response:
    """A file of the page. Raises HTTPNotFound for an unknown file."""
    return _page_response(request.match_info["file"])


def _page_response(name: str) -> web.Response:
    if (file := page_files().get(name)) is None:
        raise web.HTTPNotFound
    return web.Response(
        body=file.content,
        content_type=file.content_type,
        charset="utf-8",
        headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY},
    )


async def openapi(context: HandlerContext, call: PlainCall) -> web.Response:
    """The OpenAPI 3.1 document of this API."""
    return json_response(context.openapi())


async def metrics(context: HandlerContext, call: PlainCall) -> web.Response:
    """Metrics in Prometheus text format; without cassettes while the store does not respond."""
    broker = context.broker
    is_ready = not (broker.draining or await broker.read_error() or await broker.write_error())
    try:
        loaded = await broker.source.counts()
    except StoreError:
        loaded = None
    made = context.metrics()
    return web.Response(
        body=made.text(loaded, is_ready=is_ready),
        headers={"Content-Type": made.content_type},
    )
