"""How things stand, on one page.

Whether tapeway is alive, and whether it can do its work.

Where somebody who knows nothing of the API begins.
"""

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
from tapeway.admin.operation import Plain
from tapeway.errors import Draining, StoreError


async def status(console: HandlerContext, call: Plain) -> Status:
    """Version, mode, store, counters, and the cassettes that are in."""
    broker = console.broker
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
        version=console.version,
        mode=broker.mode,
        cassette=broker.active,
        store=StoreStatus(url=broker.store.url, durability=broker.store.durability),
        takes=broker.takes,
        upstream_connections=console.instances.connections,
        counts=Counts.model_validate(dict(broker.counts)),
        cassettes=loaded,
    )


async def healthz(console: HandlerContext, call: Plain) -> Health:
    """Alive: the process answers."""
    return Health()


async def readyz(console: HandlerContext, call: Plain) -> Readiness:
    """Ready: it is not stopping, all its processes serve, and recordings can be made durable."""
    if console.broker.draining:
        raise Draining("tapeway is stopping")
    if (trouble := console.instances.trouble()) is not None:
        raise trouble
    return Readiness()


async def index(console: HandlerContext, call: Plain) -> Index:
    """Where the API and its description are."""
    return Index(
        name="tapeway",
        version=console.version,
        api="/api/v1/status",
        openapi="/openapi.json",
    )


async def openapi(console: HandlerContext, call: Plain) -> web.Response:
    """The OpenAPI 3.1 document of this API."""
    return web.Response(body=console.openapi, content_type="application/json")


async def metrics(console: HandlerContext, call: Plain) -> web.Response:
    """Counts in Prometheus' text format; nothing of cassettes while their store is away."""
    try:
        loaded = await console.broker.loaded()
    except StoreError:
        loaded = None
    return web.Response(body=console.metrics.text(loaded), headers={"Content-Type": CONTENT_TYPE})
