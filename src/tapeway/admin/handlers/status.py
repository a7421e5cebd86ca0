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
    ReadinessQuery,
    Status,
    StoreStatus,
)
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.responses import json_response
from tapeway.errors import Draining, StoreAway, StoreError


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


async def readyz(
    context: HandlerContext, call: OperationCall[ReadinessQuery, Nothing]
) -> Readiness:
    """Readiness: it is not stopping, all workers serve, and the store can record what is asked."""
    if context.broker.draining:
        raise Draining("tapeway is stopping")
    if (error := context.processes.readiness_error()) is not None:
        raise error
    if (unwritable := await context.broker.write_error(record=call.query.record)) is not None:
        code = unwritable.code if isinstance(unwritable, StoreAway) else "store_unwritable"
        raise StoreError(unwritable.message, status=503, code=code)
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
    can_record = await context.broker.write_error() is None
    try:
        loaded = await context.broker.loaded()
    except StoreError:
        loaded = None
    return web.Response(
        body=context.metrics.text(loaded, can_record=can_record),
        headers={"Content-Type": CONTENT_TYPE},
    )
