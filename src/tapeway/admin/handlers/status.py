"""Status, health, readiness, metrics, and where the API and its description are."""

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.metrics import CONTENT_TYPE
from tapeway.admin.models.control import (
    Counts,
    Health,
    Index,
    LoadedCassette,
    Readiness,
    Status,
    StoreStatus,
)
from tapeway.admin.operation import PlainCall
from tapeway.admin.responses import json_response
from tapeway.errors import Draining, StoreError


async def status(context: HandlerContext, call: PlainCall) -> Status:
    """Version, mode, store, counters, and the loaded cassettes."""
    broker = context.broker
    loaded = [
        LoadedCassette(
            name=each.name,
            mode=broker.mode_of(each.name),
            interactions=each.interactions,
            unused=each.unused,
        )
        for each in await broker.loaded()
    ]
    return Status(
        version=context.version,
        mode=broker.mode,
        cassette=broker.active,
        store=StoreStatus(url=broker.store.url, durability=broker.store.durability),
        takes=broker.takes,
        upstream_connections=context.processes.connections,
        counts=Counts.model_validate(dict(broker.journal.counts)),
        cassettes=loaded,
    )


async def healthz(context: HandlerContext, call: PlainCall) -> Health:
    """Liveness: the process responds."""
    return Health()


async def readyz(context: HandlerContext, call: PlainCall) -> Readiness:
    """Readiness: it is not stopping, all workers serve, and the store can record."""
    if context.broker.draining:
        raise Draining("tapeway is stopping")
    if (error := context.processes.readiness_error()) is not None:
        raise error
    return Readiness()


async def index(context: HandlerContext, call: PlainCall) -> Index:
    """The paths of the API and of its OpenAPI document."""
    return Index(
        name="tapeway",
        version=context.version,
        api="/api/v1/status",
        openapi="/openapi.json",
    )


async def openapi(context: HandlerContext, call: PlainCall) -> web.Response:
    """The OpenAPI 3.1 document of this API."""
    return json_response(context.openapi())


async def metrics(context: HandlerContext, call: PlainCall) -> web.Response:
    """Metrics in Prometheus text format; without cassettes while the store does not respond."""
    try:
        loaded = await context.broker.loaded()
    except StoreError:
        loaded = None
    return web.Response(body=context.metrics.text(loaded), headers={"Content-Type": CONTENT_TYPE})
